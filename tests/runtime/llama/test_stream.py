"""A stage reads its own tensors from the file, and nobody else's."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ModelError
from skippyd.model.gguf_model import open_model
from skippyd.model.slicing import FileRange, slice_model
from skippyd.runtime.llama.batch import BatchPart
from skippyd.runtime.llama.bindings import llama
from skippyd.runtime.llama.context import StageContext
from skippyd.runtime.llama.model import load_slice
from skippyd.runtime.llama.stream import open_slice_stream, slice_in_memory
from skippyd.runtime.settings import EngineSettings


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel
    from skippyd.model.gguf_reader import TensorInfo

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(ctx_size=256)


def strangers(model: GgufModel, start: int, end: int) -> list[TensorInfo]:
    """Tensors that a stage has no business with."""
    own = {t.name for t in slice_model(model, start, end).resident_tensors}
    synthetic = {
        t.name
        for t in slice_model(model, start, end).resident_tensors
        if t.is_synthetic
    }
    return [t for t in model.tensors if t.name not in own - synthetic]


@pytest.mark.parametrize("name", ["llama-untied", "llama-tied", "gemma3"])
@pytest.mark.parametrize(("start", "end"), [(0, 2), (2, 4), (4, None)])
def test_no_range_of_a_slice_touches_another_stages_tensor(
    zoo: dict[str, GgufModel], name: str, start: int, end: int | None
) -> None:
    model = zoo[name]
    described = slice_model(model, start, end or model.layer_count)
    ranges = [
        (s.data.file_offset, s.data.file_offset + s.length)
        for s in described.segments
        if isinstance(s.data, FileRange)
    ]
    others = strangers(model, start, end or model.layer_count)
    assert others
    for tensor in others:
        tensor_end = tensor.file_offset + tensor.nbytes
        assert all(tensor_end <= a or b <= tensor.file_offset for a, b in ranges)


@pytest.mark.parametrize(("start", "end"), [(0, 2), (2, 4), (4, 6)])
def test_a_stage_is_the_same_when_all_other_tensors_are_rubbish(
    zoo: dict[str, GgufModel], tmp_path: Path, start: int, end: int
) -> None:
    model = zoo["llama-untied"]
    path = tmp_path / "rubbish.gguf"
    shutil.copyfile(model.path, path)
    with path.open("r+b") as file:
        for tensor in strangers(model, start, end):
            file.seek(tensor.file_offset)
            file.write(b"\xff" * tensor.nbytes)
    answers = [result_of(open_model(p), start, end) for p in (model.path, path)]
    assert answers[0] == answers[1]


def result_of(model: GgufModel, start: int, end: int) -> bytes:
    described = slice_model(model, start, end)
    target = None if described.is_final else described.capture_tensor
    with (
        load_slice(described, SETTINGS) as loaded,
        StageContext(loaded, SETTINGS, capture_tensor=target) as context,
    ):
        row = bytes(range(64)) * (4 * context.width // 64)
        part = BatchPart(
            sequence=0,
            position=0,
            tokens=[5] if start == 0 else (),
            activation=None if start == 0 else row.replace(b"\x3f", b"\x3c"),
            wants_logits=True,
        )
        rows = context.decode([part])
        return context.logits(0).tobytes() if rows is None else bytes(rows)


def test_the_bytes_read_are_about_the_slice(zoo: dict[str, GgufModel]) -> None:
    """Data is read once; the C library reads ahead a page or two at each tensor."""
    for model in zoo.values():
        for start, end in ((0, 2), (2, 4), (4, model.layer_count)):
            described = slice_model(model, start, end)
            with load_slice(described, SETTINGS) as loaded:
                ahead = 8192 * (len(described.resident_tensors) + 2)
                most = described.total_bytes + ahead
                own = [t for t in described.resident_tensors if not t.is_synthetic]
                assert sum(t.nbytes for t in own) < loaded.bytes_read <= most


@pytest.mark.slow
def test_a_third_of_a_real_model_reads_a_third(smollm2_path: Path) -> None:
    described = slice_model(open_model(smollm2_path), 10, 20)
    with load_slice(described, SETTINGS) as loaded:
        own = described.resident_tensor_bytes
        assert own < loaded.bytes_read < 1.05 * own


def test_the_counter_counts_while_the_stream_is_open(tiny: GgufModel) -> None:
    with open_slice_stream(slice_model(tiny, 0, 6)) as stream:
        assert stream.bytes_read == 0
        params = llama().llama_model_default_params()
        params.load_mode = llama().LLAMA_LOAD_MODE_NONE
        pointer = llama().llama_model_load_from_file_ptr(stream.pointer, params)
        assert pointer
        assert stream.bytes_read > 100_000
        llama().llama_model_free(pointer)


def test_a_file_that_changed_is_refused(tiny: GgufModel, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    shutil.copyfile(tiny.path, path)
    described = slice_model(open_model(path), 0, 3)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(ModelError, match="was replaced or changed"):
        load_slice(described, SETTINGS)


def test_the_fallback_holds_the_slice_in_anonymous_memory(tiny: GgufModel) -> None:
    described = slice_model(tiny, 2, 4)
    with slice_in_memory(described) as path:
        assert path.startswith("/proc/self/fd/")
        assert open_model_bytes(path) == described.total_bytes


def open_model_bytes(path: str) -> int:
    with open(path, "rb") as file:  # noqa: PTH123 - a descriptor's path
        return len(file.read())
