"""A slice's metadata are the model's, but for what the range changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.model.gguf_model import GgufModel, open_model
from skippyd.model.layer_shapes import sliding_layers
from skippyd.model.slicing import slice_model
from skippyd.model.source import write_slice
from support import gguf_bytes as gb
from support.gguf_bytes import TinyLlama
from support.random_models import (
    GEMMA3,
    GEMMA3_PATTERN,
    GEMMA3_PERIOD_4,
    LLAMA_ROPE_FACTORS,
    LLAMA_TIED,
    RandomModel,
    write_random_model,
)


if TYPE_CHECKING:
    from pathlib import Path


def resliced(model: GgufModel, start: int, end: int, path: Path) -> GgufModel:
    with path.open("wb") as file:
        write_slice(slice_model(model, start, end), file)
    return open_model(path)


def values(model: GgufModel) -> dict[str, object]:
    """Every key with its value; an array is its raw bytes."""
    return {
        key: model.read_metadata_bytes(entry.data_start, entry.end - entry.data_start)
        if entry.value is None
        else entry.value
        for key, entry in model.metadata.items()
    }


def test_the_block_count_is_the_slices_and_the_rest_is_the_models(
    tmp_path: Path,
) -> None:
    spec = attrs.evolve(LLAMA_TIED, with_tokenizer=True)
    model = open_model(write_random_model(tmp_path / "m.gguf", spec))
    for start, end in ((0, 4), (4, 6), (0, 6)):
        cut = resliced(model, start, end, tmp_path / "s.gguf")
        expected = {**values(model), "llama.block_count": end - start}
        assert values(cut) == expected


def test_a_middle_stage_has_no_vocabulary(tmp_path: Path) -> None:
    spec = attrs.evolve(LLAMA_TIED, with_tokenizer=True)
    model = open_model(write_random_model(tmp_path / "m.gguf", spec))
    found = values(resliced(model, 2, 4, tmp_path / "s.gguf"))
    tokenizer = {k: v for k, v in found.items() if k.startswith("tokenizer.")}
    assert tokenizer == {"tokenizer.ggml.model": "none"}
    assert found["llama.vocab_size"] == 1


def test_per_layer_arrays_keep_the_slices_elements(tmp_path: Path) -> None:
    model = open_model(write_random_model(tmp_path / "m.gguf", LLAMA_ROPE_FACTORS))
    cut = resliced(model, 2, 5, tmp_path / "s.gguf")
    assert cut.array(cut.metadata["llama.attention.head_count"]) == (4, 4, 4)
    assert cut.array(cut.metadata["llama.feed_forward_length"]) == (96, 96, 96)


def test_an_array_that_happens_to_be_as_long_as_the_layers_is_kept_whole(
    tmp_path: Path,
) -> None:
    entry = gb.u32_array("llama.rope.dimension_sections", [1, 2, 3])
    model = open_model(TinyLlama(extra_entries=(entry,)).write(tmp_path / "m.gguf"))
    cut = resliced(model, 0, 2, tmp_path / "s.gguf")
    assert cut.array(cut.metadata["llama.rope.dimension_sections"]) == (1, 2, 3)


def test_arrays_outside_the_architecture_are_kept_whole(tmp_path: Path) -> None:
    entry = gb.text_array("general.tags", ["a", "", "c"])
    model = open_model(TinyLlama(extra_entries=(entry,)).write(tmp_path / "m.gguf"))
    cut = resliced(model, 1, 2, tmp_path / "s.gguf")
    assert values(cut)["general.tags"] == values(model)["general.tags"]


def test_a_slice_of_a_split_model_does_not_claim_to_be_split(tmp_path: Path) -> None:
    model = open_model(TinyLlama().write_parts(tmp_path, 3))
    assert "split.count" in model.metadata
    cut = resliced(model, 0, 3, tmp_path / "s.gguf")
    assert not [key for key in cut.metadata if key.startswith("split.")]


@pytest.mark.parametrize("spec", [GEMMA3, GEMMA3_PERIOD_4, GEMMA3_PATTERN])
def test_layers_slide_in_a_slice_as_they_do_in_the_model(
    tmp_path: Path, spec: RandomModel
) -> None:
    model = open_model(write_random_model(tmp_path / "m.gguf", spec))
    pattern = sliding_layers(model)
    for start in range(0, 12, 2):
        for end in range(start + 1, 13, 3):
            cut = resliced(model, start, end, tmp_path / "s.gguf")
            assert sliding_layers(cut) == pattern[start:end]


@pytest.mark.parametrize("spec", [GEMMA3, GEMMA3_PERIOD_4, GEMMA3_PATTERN])
def test_a_slice_in_which_no_layer_slides_has_no_window(
    tmp_path: Path, spec: RandomModel
) -> None:
    model = open_model(write_random_model(tmp_path / "m.gguf", spec))
    layer = sliding_layers(model).index(False)
    cut = resliced(model, layer, layer + 1, tmp_path / "s.gguf")
    assert not [key for key in cut.metadata if "sliding_window" in key]


def test_a_slice_can_be_sliced_again(tmp_path: Path) -> None:
    model = open_model(write_random_model(tmp_path / "m.gguf", GEMMA3))
    once = resliced(model, 0, 8, tmp_path / "a.gguf")
    twice = resliced(once, 0, 5, tmp_path / "b.gguf")
    direct = resliced(model, 0, 5, tmp_path / "c.gguf")
    assert values(twice) == values(direct)
    assert (tmp_path / "b.gguf").stat().st_size == (tmp_path / "c.gguf").stat().st_size
