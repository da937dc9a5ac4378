"""Activation payloads: sizes are checked arithmetic, views are free."""

from __future__ import annotations

import array

import pytest

from skippyd.core.wire.activation import (
    activation_bytes,
    activation_values,
    row_factor,
)
from skippyd.core.wire.kinds import MessageKind, StateFlag
from skippyd.errors import LocalProtocolError


@pytest.mark.parametrize(
    ("flags", "size_bytes"),
    [(0, 8), (64, 16), (128, 32), (256, 16)],
    ids=["plain", "rwkv7", "gemma3n", "inkling"],
)
def test_one_row_of_width_two_has_its_golden_size(flags: int, size_bytes: int) -> None:
    """skippy-facts 1.6."""
    assert activation_bytes(MessageKind.DECODE_EMBD, 1, 0, 2, flags) == size_bytes


def test_other_flags_do_not_widen_a_row() -> None:
    everything_else = sum(flag.value for flag in StateFlag if flag.value < 64)
    assert row_factor(everything_else) == 1


def test_the_driver_side_sends_no_payload() -> None:
    assert activation_bytes(MessageKind.PREFILL_EMBD, 5, -1, 576, 0) == 0


@pytest.mark.parametrize("number", [15, 16, 17])
def test_a_cache_query_never_carries_a_payload(number: int) -> None:
    assert activation_bytes(MessageKind(number), 5, 3, 576, 0) == 0


def test_a_reader_without_width_expects_no_payload() -> None:
    assert activation_bytes(MessageKind.DECODE_EMBD, 1, 3, 0, 0) == 0


def test_a_negative_row_count_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match=r"^negative wire count: token_count"):
        activation_bytes(MessageKind.DECODE_EMBD, -1, 0, 2, 0)


def test_the_largest_payload_is_the_limit_and_not_a_byte_more() -> None:
    rows = 512 * 1024**2 // 4
    assert activation_bytes(MessageKind.PREFILL_EMBD, rows, 0, 1, 0) == 512 * 1024**2
    with pytest.raises(
        LocalProtocolError, match=r"^activation payload byte count exceeds maximum"
    ):
        activation_bytes(MessageKind.PREFILL_EMBD, rows + 1, 0, 1, 0)


def test_a_product_beyond_64_bits_is_refused_not_wrapped() -> None:
    with pytest.raises(LocalProtocolError, match="exceeds maximum"):
        activation_bytes(MessageKind.PREFILL_EMBD, 2**31 - 1, 0, 2**31 - 1, 128)


def test_values_are_a_view_of_the_payload() -> None:
    payload = bytearray(array.array("f", [1.0, -2.0, 0.5, 0.0]).tobytes())
    values = activation_values(payload, 2, 2)
    assert values.tolist() == [1.0, -2.0, 0.5, 0.0]
    payload[:4] = bytes(4)
    assert values[0] == 0.0


def test_values_of_another_size_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="8 bytes where 1 rows of width 3"):
        activation_values(bytes(8), 1, 3)


def test_values_above_the_limit_are_refused_before_they_are_viewed() -> None:
    with pytest.raises(
        LocalProtocolError,
        match=r"^decoded activation payload byte count exceeds maximum",
    ):
        activation_values(b"", 2**20, 2**10)
