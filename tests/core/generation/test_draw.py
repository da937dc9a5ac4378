"""Seeds of draws: golden values, and the one number llama.cpp misreads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.generation.draw import DrawSampler, draw_seed, usable_seed


U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)

# Contract, "Wire": first 4 bytes, little-endian, of SHA-256("skippy-draw-1", u32 seed,
# u32 choice, u64 position, u8 sampler). Computed apart from the product; the second
# with `printf | sha256sum`: 0e5472f3...
GOLDEN = [
    ((0, 0, 0, 0), 3896158990),
    ((1, 0, 41, 0), 0xF372540E),
    ((1, 0, 41, 1), 872997317),
    ((1, 3, 41, 0), 4210033367),
    ((2**32 - 2, 0, 2**33 + 5, 1), 1263688349),
    ((2**31 - 1, 0, 7, 0), 2708070453),
    ((2**32 - 1, 0, 7, 0), 2708070453),
]


@pytest.mark.parametrize(("draw", "expected"), GOLDEN)
def test_seeds_are_the_contracts(
    draw: tuple[int, int, int, int], expected: int
) -> None:
    seed, choice, position, sampler = draw
    assert draw_seed(seed, choice, position, DrawSampler(sampler)) == expected


@given(seed=U32, choice=U32, position=U64, sampler=st.sampled_from(DrawSampler))
def test_a_seed_is_never_the_one_that_means_random(
    seed: int, choice: int, position: int, sampler: DrawSampler
) -> None:
    found = draw_seed(seed, choice, position, sampler)
    assert 0 <= found < 2**32 - 1
    assert found == draw_seed(seed, choice, position, sampler)


@given(seed=U32)
def test_only_one_seed_of_a_request_is_replaced(seed: int) -> None:
    assert usable_seed(seed) == (0x7FFFFFFF if seed == 0xFFFFFFFF else seed)
