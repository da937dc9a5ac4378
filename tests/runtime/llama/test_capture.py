"""A capture takes exactly one tensor's rows, appends micro-batches, and says if not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.errors import ModelError
from skippyd.model.slicing import slice_model
from skippyd.runtime.failures import EngineError
from skippyd.runtime.llama import capture as capture_module
from skippyd.runtime.llama.batch import BatchPart
from skippyd.runtime.llama.capture import make_capture
from skippyd.runtime.llama.context import StageContext
from skippyd.runtime.llama.model import load_slice
from skippyd.runtime.settings import EngineSettings


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.settings import CaptureChoice

pytestmark = pytest.mark.native

CHOICES: list[CaptureChoice] = ["native", "python"]
PART = BatchPart(sequence=0, position=0, tokens=list(range(20)))


def captured(model: GgufModel, target: str, settings: EngineSettings) -> bytes:
    with (
        load_slice(slice_model(model, 0, 3), settings) as loaded,
        StageContext(loaded, settings, capture_tensor=target) as context,
    ):
        rows = context.decode([PART])
        assert rows is not None
        assert len(rows) == 4 * 20 * 64
        return bytes(rows)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_both_captures_take_the_same_rows(tiny: GgufModel, size: int) -> None:
    """From one micro-batch, or from several."""
    found = {
        captured(tiny, "l_out-2", EngineSettings(n_ubatch=size, capture=choice))
        for choice in CHOICES
    }
    assert len(found) == 1


@pytest.mark.parametrize("choice", CHOICES)
def test_a_tensor_that_never_comes_is_an_error(
    tiny: GgufModel, choice: CaptureChoice
) -> None:
    with pytest.raises(EngineError, match="gave 0 bytes, 5120 were expected"):
        captured(tiny, "l_out-7", EngineSettings(capture=choice))


@pytest.mark.parametrize("choice", CHOICES)
def test_a_tensor_of_another_size_is_never_written_beyond_the_rows(
    tiny: GgufModel, choice: CaptureChoice
) -> None:
    """ffn_gate has 96 floats a row where 64 are expected: nothing is copied."""
    with pytest.raises(EngineError, match="gave 7680 bytes, 5120 were expected"):
        captured(tiny, "ffn_gate-2", EngineSettings(capture=choice))


def test_without_the_library_native_is_refused_and_auto_falls_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert make_capture("l_out-0", "auto").name == "native"
    monkeypatch.setattr(capture_module, "native", lambda: None)
    assert make_capture("l_out-0", "auto").name == "python"
    with pytest.raises(ModelError, match="`make native` builds it"):
        make_capture("l_out-0", "native")


def test_results_of_two_batches_are_two_buffers(tiny: GgufModel) -> None:
    """So one may be sent while the next batch runs."""
    settings = EngineSettings()
    with (
        load_slice(slice_model(tiny, 0, 3), settings) as loaded,
        StageContext(loaded, settings, capture_tensor="l_out-2") as context,
    ):
        first = context.decode([PART])
        assert first is not None
        kept = bytes(first)
        context.decode([attrs.evolve(PART, position=20, tokens=[5])])
        assert first == kept
