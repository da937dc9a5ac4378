"""The table of what is known says the same thing in each of its columns."""

from __future__ import annotations

import pytest

from skippyd.model.architectures import (
    ARCHITECTURES,
    INPUT_TENSORS,
    OUTPUT_TENSORS,
    Architecture,
)


ROWS = list(ARCHITECTURES.values())


def test_four_architectures_are_offered() -> None:
    assert sorted(ARCHITECTURES) == ["gemma3", "llama", "qwen2", "qwen3"]


@pytest.mark.parametrize("row", ROWS, ids=list(ARCHITECTURES))
def test_a_tensor_has_one_place(row: Architecture) -> None:
    choices = frozenset().union(*row.attention, *row.feed_forward)
    assert not row.block & row.optional
    assert not choices & (row.block | row.optional)
    assert not row.shared & (INPUT_TENSORS | OUTPUT_TENSORS)


@pytest.mark.parametrize("row", ROWS, ids=list(ARCHITECTURES))
def test_every_listed_tensor_is_known(row: Architecture) -> None:
    choices = frozenset().union(*row.attention, *row.feed_forward)
    assert all(map(row.knows_block_tensor, row.block | row.optional | choices))
    known = row.shared | INPUT_TENSORS | OUTPUT_TENSORS
    assert all(map(row.knows_shared_tensor, known))


@pytest.mark.parametrize("row", ROWS, ids=list(ARCHITECTURES))
def test_what_is_not_listed_is_unknown(row: Architecture) -> None:
    assert not row.knows_block_tensor("ssm_in.weight")
    assert not row.knows_shared_tensor("cls.weight")
    assert not row.knows_shared_tensor("attn_norm.weight")


def test_only_gemma3_depends_on_the_index_or_number_of_layers() -> None:
    special = [
        row.name for row in ROWS if row.window is not None or row.layers_of_other_scale
    ]
    assert special == ["gemma3"]
