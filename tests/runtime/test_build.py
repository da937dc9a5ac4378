"""Reports name the build that computes."""

from __future__ import annotations

import pytest

from skippyd.runtime.build import build_facts


@pytest.mark.native
def test_the_build_is_described() -> None:
    facts = build_facts()
    assert facts.llama_cpp_build.startswith("llama.cpp ")
    assert facts.capture == "native"
    assert "=" not in facts.cpu_features
    assert len(facts.cpu_features.split()) >= 1
