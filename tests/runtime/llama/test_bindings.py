"""Only the declarations of llama-cpp-python are loaded, and nobody else notices."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from skippyd.runtime.llama import bindings
from skippyd.runtime.llama.bindings import LlamaMissingError, package_folder


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel

pytestmark = pytest.mark.native

HOST = """
import json, sys
from pathlib import Path
from skippyd.model.gguf_model import open_model
from skippyd.model.slicing import slice_model
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.stage_runtime import load_stage_runtime

if "before" in sys.argv:
    import llama_cpp
model = open_model(Path(sys.argv[1]))
def answer():
    runtime = load_stage_runtime(slice_model(model, 0, 6), EngineSettings())
    step = runtime.step(1, position=0, tokens=[1, 2], activation=None, predict=True)
    runtime.close()
    return step.token
first = answer()
loaded = sorted(n for n in sys.modules if n.split(".")[0] in {"diskcache", "llama_cpp"})
import llama_cpp
whole = llama_cpp.Llama
plain = llama_cpp.Llama(sys.argv[1], verbose=False, n_ctx=64)
plain.eval([1, 2])
assert first == answer()
print(json.dumps([loaded, whole.__module__, "diskcache" in sys.modules]))
"""


def host(model: GgufModel, *arguments: str) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", HOST, str(model.path), *arguments],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    answer: list[object] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.slow
@pytest.mark.process
def test_neither_the_package_nor_its_disk_cache_is_loaded(tiny: GgufModel) -> None:
    """diskcache unpickles what it finds (CVE-2025-69872); a host may still want it."""
    loaded, module, has_cache = host(tiny)
    assert loaded == []
    assert module == "llama_cpp.llama"
    assert has_cache is True


@pytest.mark.slow
@pytest.mark.process
def test_a_host_that_imported_the_package_before_keeps_it(tiny: GgufModel) -> None:
    loaded, module, _ = host(tiny, "before")
    assert isinstance(loaded, list)
    assert "llama_cpp.llama" in loaded
    assert module == "llama_cpp.llama"


def test_a_missing_package_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package_folder.cache_clear()
    monkeypatch.setattr(bindings, "PACKAGE", "llama_cpp_that_is_not_there")
    with pytest.raises(LlamaMissingError, match="pip install llama-cpp-python"):
        package_folder()
    package_folder.cache_clear()
