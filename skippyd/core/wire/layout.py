"""The fixed parts of the wire as `struct` formats; all little-endian."""

from __future__ import annotations

import struct
from typing import Final


MESSAGE_PREFIX: Final = struct.Struct("<14iQQ")
"""kind, pos_start, token_count, two sideband counts, nine state words, two ids."""

POS_START_AT: Final = struct.calcsize("<i")
DECODE_STEP_AT: Final = struct.calcsize("<11i")
CURRENT_TOKEN_AT: Final = struct.calcsize("<12i")
"""Where the prefix has these words."""

REPLY_HEAD: Final = struct.Struct("<3i")
"""kind, predicted, count; of a Failure: kind, code, stage index."""

REPLY_PREDICTED_AT: Final = struct.calcsize("<i")
"""Where the head of a reply has its first token."""

REPLY_TAIL: Final = struct.Struct("<2i")
"""window_id and the marker of a native MTP draft, behind the tokens."""

STATS: Final = struct.Struct("<27q")
"""The reply statistics in the order of `StageStats`."""

AUTH_HEAD: Final = struct.Struct("<iB")
"""Magic and token length of the authentication preamble."""

I32: Final = struct.Struct("<i")
I64: Final = struct.Struct("<q")
U32: Final = struct.Struct("<I")

READY_MAGIC: Final = 0x53524459
TRANSPORT_AUTH_MAGIC: Final = 0x53415554


def pack_values(values: tuple[int, ...]) -> bytes:
    """Pack token ids or positions.

    Raises:
        struct.error: A value does not fit 32 bits.
    """
    if len(values) == 1:
        return I32.pack(values[0])
    return struct.pack(f"<{len(values)}i", *values)


def unpack_values(data: memoryview) -> tuple[int, ...]:
    """Unpack token ids or positions; the length is a multiple of 4."""
    if not data:
        return ()
    return struct.unpack(f"<{len(data) // I32.size}i", data)
