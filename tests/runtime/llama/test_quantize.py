"""A quantised copy is the same model in another type, near the original's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

from skippyd.errors import ModelError
from skippyd.runtime.llama.quantize import write_quantized_copy


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel

pytestmark = pytest.mark.native

Tensors = dict[str, tuple[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]]


def tensors_of(path: Path) -> Tensors:
    """Type and values of each tensor, read by another reader than ours."""
    return {
        tensor.name: (
            tensor.tensor_type.name,
            np.asarray(dequantize(tensor.data, tensor.tensor_type), np.float32),
        )
        for tensor in gguf.GGUFReader(path).tensors
    }


@pytest.mark.parametrize(("file_type", "steps"), [("q4_0", 16), ("q8_0", 254)])
def test_the_layers_weights_are_of_the_type_and_near(
    tiny: GgufModel, tmp_path: Path, file_type: str, steps: int
) -> None:
    """A weight is off by at most one step of its block's range."""
    copy = tmp_path / "copy.gguf"
    write_quantized_copy(tiny.path, copy, file_type)
    before, after = tensors_of(tiny.path), tensors_of(copy)
    assert after.keys() == before.keys()
    kind, values = after["blk.3.ffn_up.weight"]
    _, original = before["blk.3.ffn_up.weight"]
    assert kind == file_type.upper()
    blocks = original.reshape(-1, 32)
    step = 2 * np.abs(blocks).max(axis=1, keepdims=True) / steps
    assert np.all(np.abs(values.reshape(-1, 32) - blocks) <= 1.01 * step)
    assert copy.stat().st_size < tiny.path.stat().st_size


def test_norms_stay_as_they_are(tiny: GgufModel, tmp_path: Path) -> None:
    copy = tmp_path / "copy.gguf"
    write_quantized_copy(tiny.path, copy, "q4_0")
    before, after = tensors_of(tiny.path), tensors_of(copy)
    for name in ("output_norm.weight", "blk.0.attn_norm.weight"):
        assert after[name][0] == "F32"
        assert after[name][1].tobytes() == before[name][1].tobytes()


def test_what_is_no_model_is_refused_by_its_path(tmp_path: Path) -> None:
    source, copy = tmp_path / "source.gguf", tmp_path / "copy.gguf"
    source.write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"cannot quantise .*source\.gguf to q4_0: \w"):
        write_quantized_copy(source, copy, "q4_0")
