"""Sizes of data types and values are those of the pinned llama.cpp."""

from __future__ import annotations

import struct

import gguf
import pytest

from skippyd.model.gguf_types import (
    PLACEHOLDER_TYPES,
    SCALAR_BYTES,
    SCALAR_FORMATS,
    TENSOR_TYPES,
    TENSOR_TYPES_BY_NAME,
    ValueKind,
)


# The writer's library counts two f32 for q8_1; ggml has two f16 and 32 bytes.
WRITER_IS_WRONG_ABOUT = {9}


@pytest.mark.parametrize("code", sorted(int(code) for code in gguf.GGML_QUANT_SIZES))
def test_every_type_the_writer_knows_has_its_size(code: int) -> None:
    weights, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(code)]
    kind = TENSOR_TYPES[code]
    assert kind.block_weights == weights
    assert code in WRITER_IS_WRONG_ABOUT or kind.block_bytes == size


def test_types_newer_than_the_writer_are_known() -> None:
    assert TENSOR_TYPES_BY_NAME["q2_0"].block_bytes == 18
    assert TENSOR_TYPES_BY_NAME["q8_1"].block_bytes == 36
    assert len(TENSOR_TYPES) == 35


def test_removed_types_are_unknown() -> None:
    assert {4, 5, 31, 32, 33, 36, 37, 38, 43}.isdisjoint(TENSOR_TYPES)


def test_a_row_takes_its_blocks() -> None:
    assert TENSOR_TYPES_BY_NAME["q4_0"].row_bytes(576) == 18 * 18


@pytest.mark.parametrize("kind", list(SCALAR_FORMATS))
def test_value_sizes_agree_with_their_formats(kind: ValueKind) -> None:
    assert struct.calcsize("<" + SCALAR_FORMATS[kind]) == SCALAR_BYTES[kind]


def test_strings_and_arrays_have_no_fixed_size() -> None:
    assert set(ValueKind) - set(SCALAR_BYTES) == {ValueKind.STRING, ValueKind.ARRAY}


def test_placeholders_go_from_the_smallest_type_to_one_that_divides_any_width() -> None:
    per_weight = [kind.block_bytes / kind.block_weights for kind in PLACEHOLDER_TYPES]
    assert per_weight == sorted(per_weight)
    assert PLACEHOLDER_TYPES[-1].block_weights == 1
