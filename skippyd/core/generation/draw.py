"""The seed of one random draw, from what the draw is and not from what came before.

A generation resumed from its prompt and first tokens therefore goes on exactly as it
would have: the draw at a position is the same on any chain (contract, "Wire").
"""

from __future__ import annotations

import hashlib
import struct
from enum import IntEnum


DOMAIN = b"skippy-draw-1"
LLAMA_RANDOM_SEED = 0xFFFFFFFF
"""What llama.cpp reads as "choose a seed yourself"; never handed to it."""
REPLACEMENT_SEED = 0x7FFFFFFF


class DrawSampler(IntEnum):
    """Which random sampler of the chain a seed is for."""

    DISTRIBUTION = 0
    XTC = 1


def usable_seed(seed: int) -> int:
    """The seed of a request, with the one value llama.cpp misreads replaced."""
    return REPLACEMENT_SEED if seed == LLAMA_RANDOM_SEED else seed


def draw_seed(seed: int, choice: int, position: int, sampler: DrawSampler) -> int:
    """Seed of one draw, a u32 that is never llama.cpp's "random".

    Args:
        seed: The request's seed, u32.
        choice: Index of the answer among several, u32.
        position: Absolute position of the token to be drawn, u64.
        sampler: The random sampler that draws.
    """
    fields = struct.pack("<IIQB", usable_seed(seed), choice, position, sampler)
    digest = hashlib.sha256(DOMAIN + fields).digest()
    return usable_seed(int.from_bytes(digest[:4], "little"))
