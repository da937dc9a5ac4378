"""Activation payloads: raw little-endian f32 rows, their size and a view of them."""

from __future__ import annotations

from typing import Final, TypeAlias

from skippyd.core.wire.kinds import MessageKind, StateFlag, is_cache_query
from skippyd.core.wire.limits import ACTIVATION_MAX_BYTES, WIRE_VALUE_BYTES
from skippyd.errors import LocalProtocolError


Payload: TypeAlias = bytes | bytearray | memoryview
"""Bytes that are passed on without a copy."""

# A flagged row carries extra rows of the same width beside it.
_ROW_FACTORS: Final = (
    (StateFlag.GEMMA3N_ALTUP.value, 4),
    (StateFlag.RWKV7_V_FIRST.value, 2),
    (StateFlag.INKLING_MTP_EMBD.value, 2),
)
_ROW_FLAGS: Final = sum(flag for flag, _ in _ROW_FACTORS)


def row_factor(flags: int) -> int:
    """How many rows of the activation width travel for one token."""
    if not flags & _ROW_FLAGS:
        return 1
    return next(factor for flag, factor in _ROW_FACTORS if flags & flag)


def activation_bytes(
    kind: MessageKind,
    token_count: int,
    source_stage_index: int,
    width: int,
    flags: int,
) -> int:
    """Size of the activation payload that follows a message's sidebands.

    Nothing follows a message of the driver side (a source index below 0) or a cache
    query. A reader that expects no payload at all (prediction return) has width 0.

    Raises:
        LocalProtocolError: The count is negative, or the payload above its maximum.
    """
    if token_count < 0:
        raise LocalProtocolError(
            f"negative wire count: token_count {token_count} of {kind.name}"
        )
    if source_stage_index < 0 or is_cache_query(kind):
        return 0
    size_bytes = token_count * width * WIRE_VALUE_BYTES * row_factor(flags)
    if size_bytes > ACTIVATION_MAX_BYTES:
        raise LocalProtocolError(
            f"activation payload byte count exceeds maximum: {token_count} rows of"
            f" width {width} are {size_bytes} bytes, above {ACTIVATION_MAX_BYTES};"
            " send smaller chunks"
        )
    return size_bytes


def activation_values(
    payload: Payload, token_count: int, width: int
) -> memoryview[float]:
    """View a payload as f32 values in rows of `width`, without a copy.

    Only for rows without extra parts: `token_count * width` values.

    Raises:
        LocalProtocolError: The payload is above its maximum or of another size.
    """
    size_bytes = token_count * width * WIRE_VALUE_BYTES
    if size_bytes > ACTIVATION_MAX_BYTES:
        raise LocalProtocolError(
            "decoded activation payload byte count exceeds maximum:"
            f" {size_bytes} bytes, above {ACTIVATION_MAX_BYTES}; send smaller chunks"
        )
    view = memoryview(payload).cast("B")
    if len(view) != size_bytes:
        raise LocalProtocolError(
            f"activation payload has {len(view)} bytes where {token_count} rows of"
            f" width {width} need {size_bytes}; the stages disagree about the width"
        )
    return view.cast("f")
