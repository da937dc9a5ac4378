"""Fixed parts have the published sizes."""

from __future__ import annotations

import struct

import pytest

from skippyd.core.wire import layout
from skippyd.core.wire.limits import MESSAGE_PREFIX_BYTES


def test_fixed_parts_have_their_sizes() -> None:
    assert layout.MESSAGE_PREFIX.size == MESSAGE_PREFIX_BYTES
    assert layout.STATS.size == 216
    assert layout.REPLY_HEAD.size == 12
    assert layout.REPLY_TAIL.size == 8
    assert layout.AUTH_HEAD.size == 5


def test_values_survive_packing_and_must_fit() -> None:
    data = layout.pack_values((-1, 0, 2**31 - 1))
    assert data.hex() == "ffffffff00000000ffffff7f"
    assert layout.unpack_values(memoryview(data)) == (-1, 0, 2**31 - 1)
    with pytest.raises(struct.error):
        layout.pack_values((2**31,))
