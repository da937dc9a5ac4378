"""Numbers per layer are what llama.cpp takes them to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ModelError
from skippyd.model.gguf_model import GgufModel, open_model
from skippyd.model.layer_shapes import (
    head_counts,
    key_length,
    kv_head_counts,
    sliding_layers,
    value_length,
)
from support import gguf_bytes as gb
from support.gguf_bytes import TinyLlama
from support.random_models import (
    GEMMA3,
    GEMMA3_NO_WINDOW,
    GEMMA3_PATTERN,
    GEMMA3_PERIOD_4,
    RandomModel,
    write_random_model,
)


if TYPE_CHECKING:
    from pathlib import Path


def tiny(tmp_path: Path, **replaced: bytes | None) -> GgufModel:
    keys = {f"llama.{key.replace('__', '.')}": value for key, value in replaced.items()}
    return open_model(TinyLlama(replaced=keys).write(tmp_path / "m.gguf"))


def test_one_number_counts_for_every_layer(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    assert head_counts(model) == (2, 2, 2)
    assert kv_head_counts(model) == (1, 1, 1)


def test_an_array_counts_per_layer(tmp_path: Path) -> None:
    entry = gb.u32_array("llama.attention.head_count_kv", [1, 2, 1])
    assert kv_head_counts(tiny(tmp_path, attention__head_count_kv=entry)) == (1, 2, 1)


def test_an_array_of_another_length_is_an_error(tmp_path: Path) -> None:
    entry = gb.u32_array("llama.attention.head_count_kv", [1, 2])
    with pytest.raises(ModelError, match="holds 2 values for 3 layers"):
        kv_head_counts(tiny(tmp_path, attention__head_count_kv=entry))


def test_keys_and_values_have_as_many_heads_as_queries_by_default(
    tmp_path: Path,
) -> None:
    assert kv_head_counts(tiny(tmp_path, attention__head_count_kv=None)) == (2, 2, 2)


@pytest.mark.parametrize("entry", [None, gb.u32("llama.attention.head_count", 0)])
def test_no_heads_are_an_error(tmp_path: Path, entry: bytes | None) -> None:
    with pytest.raises(ModelError, match=r"'llama\.attention\.head_count' is missing"):
        head_counts(tiny(tmp_path, attention__head_count=entry))


def test_lengths_default_to_the_width_per_head(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    assert (key_length(model), value_length(model)) == (4, 4)


def test_given_lengths_count(tmp_path: Path) -> None:
    model = tiny(
        tmp_path,
        attention__key_length=gb.u32("llama.attention.key_length", 16),
        attention__value_length=gb.u32("llama.attention.value_length", 24),
    )
    assert (key_length(model), value_length(model)) == (16, 24)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (GEMMA3, tuple(i % 6 != 5 for i in range(12))),
        (GEMMA3_PERIOD_4, tuple(i % 4 != 3 for i in range(12))),
        (GEMMA3_PATTERN, GEMMA3_PATTERN.window_pattern),
        (GEMMA3_NO_WINDOW, (False,) * 12),
        (RandomModel(), (False,) * 6),
    ],
)
def test_layers_slide_by_pattern_by_period_or_not_at_all(
    tmp_path: Path, spec: RandomModel, expected: tuple[bool, ...]
) -> None:
    model = open_model(write_random_model(tmp_path / "m.gguf", spec))
    assert sliding_layers(model) == expected
