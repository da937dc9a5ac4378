from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.topology.fitting import (
    fewest_stages,
    fits,
    furthest,
    largest,
    prefix_bytes,
    widest_margin,
)


def obvious_margins(usable: list[int], layers: list[int]) -> list[int]:
    """The smallest margin of every way to cut the layers."""
    inner = combinations(range(1, len(layers)), len(usable) - 1)
    return [
        min(
            room - sum(layers[start:end])
            for room, (start, end) in zip(
                usable, pairwise((0, *cuts, len(layers))), strict=True
            )
        )
        for cuts in inner
    ]


LAYERS = st.lists(st.integers(1, 9), min_size=1, max_size=7)
NODES = st.lists(st.integers(0, 30), min_size=1, max_size=5).map(
    lambda sizes: sorted(sizes, reverse=True)
)


def test_a_prefix_counts_weights_and_kv_from_nothing() -> None:
    assert prefix_bytes((5, 1, 3), 10) == (0, 15, 26, 39)


@pytest.mark.parametrize(
    ("start", "budget", "expected"),
    [
        (0, 14, 0),
        (0, 15, 1),
        (0, 25, 1),
        (0, 26, 2),
        (1, 24, 3),
        (1, 10, 1),
        (2, -1, 1),
    ],
)
def test_furthest_is_the_end_of_the_longest_range(
    start: int, budget: int, expected: int
) -> None:
    assert furthest((0, 15, 26, 39), start, budget) == expected


@given(usable=NODES, layers=LAYERS, margin=st.integers(-20, 20))
def test_fits_is_what_trying_every_cut_says(
    usable: list[int], layers: list[int], margin: int
) -> None:
    expected = any(worst >= margin for worst in obvious_margins(usable, layers))
    assert expected == fits(usable, prefix_bytes(layers, 0), margin)


def test_fits_keeps_a_layer_for_every_later_node() -> None:
    assert fits([100, 1], prefix_bytes([1, 1, 1], 0))
    assert not fits([100, 1, 1, 1], prefix_bytes([1, 1, 1], 0))
    assert not fits([100, 1], prefix_bytes([1, 1, 2], 0))


def test_fits_looks_at_a_part_of_the_layers() -> None:
    prefix = prefix_bytes([9, 1, 1, 9], 0)
    assert fits([1, 1], prefix, first=1, last=3)
    assert not fits([1, 1], prefix, first=0, last=3)
    assert not fits([1, 1], prefix, first=1)


@given(usable=NODES, layers=LAYERS, at_least=st.integers(1, 6))
def test_the_fewest_stages_are_what_trying_every_count_says(
    usable: list[int], layers: list[int], at_least: int
) -> None:
    fitting = [
        count
        for count in range(at_least, len(usable) + 1)
        if any(worst >= 0 for worst in obvious_margins(usable[:count], layers))
    ]
    expected = min(fitting, default=None)
    assert expected == fewest_stages(usable, prefix_bytes(layers, 0), at_least)


@given(usable=NODES, layers=LAYERS)
def test_the_counts_that_fit_have_no_gap(usable: list[int], layers: list[int]) -> None:
    prefix = prefix_bytes(layers, 0)
    fitting = [c for c in range(1, len(usable) + 1) if fits(usable[:c], prefix)]
    assert not fitting or fitting == list(range(fitting[0], fitting[-1] + 1))


@given(usable=NODES, layers=LAYERS)
def test_the_widest_margin_is_the_best_of_all_cuts(
    usable: list[int], layers: list[int]
) -> None:
    margins = obvious_margins(usable, layers)
    if margins:
        prefix = prefix_bytes([3, *layers, 4], 0)
        got = widest_margin(usable, prefix, first=1, last=len(layers) + 1)
        assert max(margins) == got


@pytest.mark.parametrize("answer", range(8))
def test_largest_finds_the_last_number_that_holds(answer: int) -> None:
    assert largest(0, 7, lambda number: number <= answer) == answer


def test_largest_asks_few_questions() -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number <= 700

    assert largest(0, 1023, holds) == 700
    assert len(asked) == 10
