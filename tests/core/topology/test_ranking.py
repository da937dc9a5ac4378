from __future__ import annotations

import math

import pytest

from skippyd.core.topology.ranking import (
    _with_widest_margin,
    assumed_latencies,
    best_by_context,
    best_by_latency,
    lay_out,
    layer_prefix,
    lowest_estimate_us,
    margins,
    ordered,
)
from skippyd.core.topology.request import Node
from skippyd.ids import NodeId
from skippyd.units import GIB
from support.topologies import ask, base_model, equal_nodes, gib_nodes, uneven_model


def nodes_at(*latencies_us: int | None) -> list[Node]:
    return [
        Node(node_id=NodeId(f"n{i}"), vram_bytes=GIB, latency_us=latency)
        for i, latency in enumerate(latencies_us)
    ]


def test_nodes_stand_by_usable_memory_then_by_id() -> None:
    nodes = gib_nodes(b=10, d=20, a=10, c=30)
    assert [node.node_id for node in ordered(nodes)] == ["c", "d", "a", "b"]


def test_the_prefix_counts_weights_and_kv_of_each_layer() -> None:
    assert layer_prefix(base_model(), 65_536)[:3] == (0, 1_181_155_328, 2_362_310_656)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((None, None), None),
        ((3, None, 7), [3, 7, 7]),
        ((0, None), [0, 0]),
        ((5,), [5]),
    ],
)
def test_unknown_latencies_count_as_the_largest(
    given: tuple[int | None, ...], expected: list[int] | None
) -> None:
    assert assumed_latencies(nodes_at(*given)) == expected


@pytest.mark.parametrize(
    ("latencies", "at_least", "expected"),
    [
        ([10, 10, 10], 1, 20),
        ([10, 10, 10], 3, 30),
        ([1, 50, 9], 1, 18),
        ([30, 1, 30], 1, 60),
        ([0, 0, 9], 1, 0),
        ([0, 5, 9], 1, 10),
        ([10, 10, 10], 4, None),
    ],
)
def test_the_lowest_estimate_is_count_times_the_farthest(
    latencies: list[int], at_least: int, expected: int | None
) -> None:
    """Each node holds two of three layers."""
    nodes = equal_nodes(3, 2)
    prefix = (0, GIB, 2 * GIB, 3 * GIB)
    assert lowest_estimate_us(nodes, latencies, prefix, at_least) == expected


def test_a_near_node_too_many_pushes_the_smallest_out() -> None:
    """Only as many nodes as layers can be used: the largest near ones."""
    nodes = ordered(gib_nodes(a=9, b=8, c=1, d=1, e=1))
    prefix = (0, 4 * GIB, 8 * GIB)
    assert lowest_estimate_us(nodes, [9, 9, 1, 2, 3], prefix, 1) == 9
    assert lowest_estimate_us(nodes, [9, 9, 1, 2, 3], prefix, 2) == 18


def test_nothing_is_found_where_nothing_fits() -> None:
    nodes = ordered(equal_nodes(2, 8))
    request = ask(base_model(), tuple(nodes))

    assert best_by_context(nodes, request) is None
    assert best_by_latency(nodes, [1, 1], request) is None


def test_the_first_order_takes_the_largest_context_on_the_fewest_nodes() -> None:
    nodes = ordered(equal_nodes(4, 23))
    found = best_by_context(nodes, ask(base_model(262_144), tuple(nodes)))

    assert found is not None
    assert found.context_length == 262_144
    assert found.cuts == (0, 14, 27, 40)


def test_the_second_order_takes_the_lowest_estimate_first() -> None:
    nodes = ordered(equal_nodes(4, 23))
    found = best_by_latency(nodes, [1, 1, 1, 1], ask(base_model(262_144), tuple(nodes)))

    assert found is not None
    assert found.context_length == 65_536
    assert found.cuts == (0, 20, 40)


@pytest.mark.parametrize(
    ("large", "small", "native", "context", "chosen"),
    [
        (23, 13, 262_144, 131_072, ["c", "d", "e", "f"]),  # more context
        (23, 13, 65_536, 65_536, ["c", "d", "e", "f"]),  # 2 GiB left against 1
        (24, 12.2, 65_536, 65_536, ["a", "b"]),  # 2 GiB left against 1.2
    ],
)
def test_among_equal_estimates_context_then_margin_decide(
    large: float, small: float, native: int, context: int, chosen: list[str]
) -> None:
    """Two nodes at 20 ms or four at 10 ms: 40 ms a token either way."""
    nodes = ordered(gib_nodes(a=large, b=large, c=small, d=small, e=small, f=small))
    request = ask(base_model(native), tuple(nodes))

    found = best_by_latency(nodes, [20, 20, 10, 10, 10, 10], request)

    assert found is not None
    assert found.context_length == context
    assert [node.node_id for node in found.nodes] == chosen


def test_a_free_network_spreads_until_the_margin_stops_growing() -> None:
    """The tiny nodes would be the fullest; the four others share alike."""
    nodes = ordered(gib_nodes(a=9, b=9, c=9, d=9, x=2, y=2))
    request = ask(uneven_model(*[1] * 8), tuple(nodes))

    found = best_by_latency(nodes, [0] * 6, request)

    assert found is not None
    assert found.cuts == (0, 2, 4, 6, 8)


def test_of_two_sets_with_the_same_fullest_node_the_next_margins_decide() -> None:
    """Every set has a node with the heavy layer alone; more nodes leave more."""
    nodes = ordered(equal_nodes(4, 10))
    request = ask(uneven_model(8, 1, 1, 1), tuple(nodes))

    found = best_by_latency(nodes, [0] * 4, request)

    assert found is not None
    assert found.cuts == (0, 1, 2, 3, 4)


def test_a_stage_that_is_not_there_never_runs_short() -> None:
    """Margins are sorted and end in infinity, so a longer equal list loses."""
    model = uneven_model(1, 8)
    candidate = lay_out(ordered(gib_nodes(a=9, b=10)), model, 65_536)

    left = margins(candidate, layer_prefix(model, 65_536))

    assert left == (GIB - 65_536, 9 * GIB - 65_536, math.inf)


def test_only_sets_with_the_widest_margin_are_balanced() -> None:
    """Balancing costs far more than the test for a margin."""
    prefix = (0, GIB, 2 * GIB, 3 * GIB, 4 * GIB)
    sets = [
        gib_nodes(a=2, b=2),  # 0 left on each
        gib_nodes(c=3, d=3),  # 1
        gib_nodes(e=5),  # 1
        gib_nodes(f=3, g=2),  # 0
    ]

    assert _with_widest_margin(sets, prefix) == [sets[1], sets[2]]
    assert _with_widest_margin(sets[1:], prefix) == [sets[1], sets[2]]
    assert _with_widest_margin([sets[0], sets[3]], prefix) == [sets[0], sets[3]]


def test_a_margin_of_one_byte_is_wider_than_none() -> None:
    prefix = (0, 10, 20)
    nodes = [
        (Node(node_id=NodeId(f"n{size}"), vram_bytes=size),) for size in (20, 21, 22)
    ]

    assert _with_widest_margin(nodes[:2], prefix) == [nodes[1]]
    assert _with_widest_margin(nodes, prefix) == [nodes[2]]
    assert _with_widest_margin(nodes[1:], prefix) == [nodes[2]]
    assert _with_widest_margin(nodes[:1], prefix) == [nodes[0]]
