"""The native library: refused when it is another's, missed with a word, a wall to throws."""

from __future__ import annotations

import ctypes
import logging
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from skippyd.runtime.failures import EngineError, SamplingError
from skippyd.runtime.llama import native as native_module
from skippyd.runtime.llama.batch import BatchPart
from skippyd.runtime.llama.bindings import llama
from skippyd.runtime.llama.native import (
    ERROR_BYTES,
    THREW,
    NativeMismatchError,
    error_text,
    native,
)
from skippyd.runtime.llama.sampler import SamplerChain
from skippyd.runtime.settings import EngineSettings
from support.engine_chain import ContextChain


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(ctx_size=256)

ANOTHER_LIBRARY = """
#include <cstddef>
extern "C" {
int skippy_native_abi() { return %d; }
size_t skippy_capture_size() { return 1; }
}
"""

THROWING = """
#include <stdexcept>
extern "C" {
int known() { throw std::runtime_error("no such tensor"); }
int unknown() { throw 7; }
}
"""


def compiled(folder: Path, name: str, source: str) -> Path:
    """A shared library made of this C++ text."""
    compiler = shutil.which("c++")
    assert compiler is not None, "building llama.cpp needed a C++ compiler"
    (folder / f"{name}.cpp").write_text(source)
    library = folder / f"{name}.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", library, folder / f"{name}.cpp"],
        check=True,
    )
    return library


@pytest.fixture
def forget_library() -> Iterator[None]:
    """Look for the library anew, now and after the test."""
    native.cache_clear()
    yield
    native.cache_clear()


@pytest.mark.slow
@pytest.mark.usefixtures("forget_library")
@pytest.mark.parametrize(
    ("abi", "words"),
    [
        (99, r"has ABI 99, this package needs \d+; rebuild it with `make native`"),
        (native_module.ABI, r"skippy_capture_size is 1, expected \d+; rebuild"),
    ],
)
def test_a_library_of_another_version_is_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abi: int, words: str
) -> None:
    path = compiled(tmp_path, "another", ANOTHER_LIBRARY % abi)
    monkeypatch.setattr(native_module, "LIBRARY", path)
    with pytest.raises(NativeMismatchError, match=words):
        native()


@pytest.mark.usefixtures("forget_library")
def test_a_missing_library_is_said_once_and_the_python_capture_takes_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tiny: GgufModel,
) -> None:
    monkeypatch.setattr(native_module, "LIBRARY", tmp_path / "libnone.so")
    part = BatchPart(sequence=0, position=0, tokens=[1, 2, 3], wants_logits=True)
    with caplog.at_level(logging.WARNING, "skippyd.native"):
        with ContextChain.of_slices(tiny, (2,), SETTINGS) as chain:
            [found] = chain.decode([part])
            capture = chain.contexts[0].capture
            assert capture is not None
            assert capture.name == "python"
        with ContextChain.unsplit(tiny.path, SETTINGS) as whole:
            [expected] = whole.decode([part])
    assert found.tobytes() == expected.tobytes()
    said = [r.getMessage() for r in caplog.records if r.name == "skippyd.native"]
    assert len(said) == 1
    assert "libnone.so is missing: the Python capture is used" in said[0]
    assert "`make native` builds it" in said[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "words"),
    [("known", "no such tensor"), ("unknown", "unknown C++ exception")],
)
def test_every_wall_turns_a_throw_into_a_number_and_a_text(
    tmp_path: Path, function: str, words: str
) -> None:
    """Called with functions of ours that throw: the process lives on."""
    throwing = ctypes.CDLL(str(compiled(tmp_path, "throwing", THROWING)))
    address = ctypes.cast(getattr(throwing, function), ctypes.c_void_p)
    library = native()
    assert library is not None
    batch = llama().llama_batch()
    calls = {
        "decode": (None, ctypes.byref(batch)),
        "sample": (None, None, 0),
        "accept": (None, 0),
        "tokenize": (None, b"x", 1, None, 0, False, False),
    }
    for name, arguments in calls.items():
        error = ctypes.create_string_buffer(ERROR_BYTES)
        wall = getattr(library, f"skippy_{name}")
        assert wall(address, *arguments, error, ERROR_BYTES) == THREW
        assert error_text(error) == words


@pytest.mark.slow
def test_a_decode_that_throws_is_an_engine_error(
    tmp_path: Path, tiny: GgufModel
) -> None:
    """No batch that passes our checks makes llama.cpp throw, so another function does."""
    throwing = ctypes.CDLL(str(compiled(tmp_path, "throwing", THROWING)))
    part = BatchPart(sequence=0, position=0, tokens=[1, 2])
    with ContextChain.of_slices(tiny, (), SETTINGS) as chain:
        context = chain.contexts[0]
        real = context.decode_address
        address = ctypes.cast(throwing.known, ctypes.c_void_p).value
        assert address is not None
        context.decode_address = address
        with pytest.raises(EngineError, match=r"llama.cpp threw: no such tensor"):
            context.decode([part])
        context.decode_address = real
        context.decode([part])
        assert context.length(0) == 2


def test_a_token_outside_a_grammar_is_a_sampling_error(talking: GgufModel) -> None:
    """llama.cpp throws here; without the wall the process ends with 134."""
    with ContextChain.of_slices(talking, (), SETTINGS) as chain:
        context = chain.contexts[0]
        sampler = SamplerChain(None, context)
        grammar = llama().llama_sampler_init_grammar(
            context.model.vocabulary_pointer, b'root ::= "a"', b"root"
        )
        assert grammar
        llama().llama_sampler_chain_add(sampler._chain, grammar)
        with pytest.raises(SamplingError, match="token 98 was refused by the sampler"):
            sampler._accept(ord("b"))
        sampler.rewind()
        sampler._catch_up([ord("a")])
        sampler.close()
