"""Facts about the llama.cpp build in use, for reports."""

from __future__ import annotations

from typing import Literal

import attrs

from skippyd.runtime.llama.bindings import build_description, cpu_features
from skippyd.runtime.llama.native import native


@attrs.frozen(kw_only=True)
class BuildFacts:
    """What computes here.

    Args:
        llama_cpp_build: Name of the llama.cpp build.
        cpu_features: Features it uses, separated by spaces.
        capture: The capture that is used unless told otherwise.
    """

    llama_cpp_build: str
    cpu_features: str
    capture: Literal["native", "python"]


def build_facts() -> BuildFacts:
    """The facts of this process's build."""
    return BuildFacts(
        llama_cpp_build=build_description(),
        cpu_features=cpu_features(),
        capture="python" if native() is None else "native",
    )
