from __future__ import annotations

from itertools import pairwise

import pytest

from skippyd.core.topology.balance import (
    Block,
    balanced_cuts,
    leximin_cuts,
    open_cuts,
)
from skippyd.core.topology.fitting import prefix_bytes


def cut(usable: list[int], layers: list[int]) -> tuple[int, ...]:
    return balanced_cuts(usable, prefix_bytes(layers, 0))


@pytest.mark.parametrize(
    ("usable", "layers", "expected"),
    [
        ([10], [1, 2], (0, 2)),
        ([5, 5], [1] * 5, (0, 3, 5)),
        ([10, 5], [1] * 5, (0, 4, 5)),
        ([80] * 5, [5] * 62, (0, 13, 26, 38, 50, 62)),
        # The heavy layer settles the first two cuts, the rest is shared again.
        ([20, 20, 20, 20], [1, 1, 15, 1, 1, 1, 1], (0, 2, 3, 5, 7)),
        # Memory may be short: the worst node misses as little as possible.
        ([1, 1], [5, 5, 5], (0, 2, 3)),
        # As many layers as nodes leave no choice.
        ([9, 8, 7], [1, 1, 1], (0, 1, 2, 3)),
    ],
)
def test_ranges_leave_the_fullest_node_as_much_as_possible(
    usable: list[int], layers: list[int], expected: tuple[int, ...]
) -> None:
    assert cut(usable, layers) == expected


def test_of_equal_answers_earlier_stages_hold_more_layers() -> None:
    assert cut([10, 10, 10], [1] * 4) == (0, 2, 3, 4)
    assert cut([10, 10, 10], [1] * 5) == (0, 2, 4, 5)


def test_open_cuts_are_those_of_some_arrangement_and_no_others() -> None:
    block = Block(node_start=0, node_end=3, layer_start=1, layer_end=5)
    prefix = prefix_bytes([9, 1, 2, 2, 1, 9], 0)

    choices = open_cuts([4, 3, 2], prefix, block)

    # 1+2 | 2 | 1 fits; 1 | 2+2 | 1 is too much for the second node.
    assert choices == [[1], [3], [4], [5]]


def test_a_layer_too_heavy_for_later_nodes_leaves_a_gap_between_cuts() -> None:
    block = Block(node_start=0, node_end=2, layer_start=0, layer_end=4)
    prefix = prefix_bytes([1, 1, 5, 1], 0)

    assert open_cuts([8, 3], prefix, block) == [[0], [3], [4]]
    assert open_cuts([8, 6], prefix, block) == [[0], [2, 3], [4]]


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        ([4, 3, 3], [0, 2, 3, 4]),
        ([3, 5, 2], [0, 1, 3, 4]),  # leaves 0, 1, 3 rather than 0, 0, 4
        ([2, 3, 4], [0, 1, 3, 4]),  # leaves 0, 1, 2 rather than 0, 1, 1
        ([3, 3, 3], [0, 1, 3, 4]),  # 1, 1, 1
    ],
)
def test_leximin_compares_more_than_the_smallest_margin(
    room: list[int], expected: list[int]
) -> None:
    prefix = prefix_bytes([2, 1, 1, 2], 0)
    block = Block(node_start=0, node_end=3, layer_start=0, layer_end=4)

    assert leximin_cuts(room, prefix, open_cuts(room, prefix, block)) == expected


def test_many_equal_nodes_and_layers_are_quick_work() -> None:
    """128 layers on 100 equal nodes: nearly every cut stays open."""
    cuts = cut([1000] * 100, [10] * 128)
    sizes = [end - start for start, end in pairwise(cuts)]
    assert sizes == [2] * 28 + [1] * 72
