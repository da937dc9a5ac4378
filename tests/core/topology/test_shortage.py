from __future__ import annotations

import pytest

from skippyd.core.topology.request import ModelShape, Node
from skippyd.core.topology.shortage import nearest_arrangement
from skippyd.ids import NodeId
from skippyd.units import GIB
from support.topologies import (
    QWEN_480B,
    ask,
    base_model,
    equal_nodes,
    gib_nodes,
    planned,
    uneven_model,
    unplannable,
)


LAYER_64K = 5_230_221_544
"""Bytes of one layer of the 480B model at 64k (skippy-facts 4.4)."""


def test_a_refusal_says_how_much_is_missing_where() -> None:
    refusal = unplannable(ask(QWEN_480B, equal_nodes(4, 70)))

    assert refusal.context_length == 65_536
    assert (refusal.node_count, refusal.layer_count, refusal.min_nodes) == (4, 62, 1)
    assert [s.layer_end - s.layer_start for s in refusal.nearest] == [16, 16, 15, 15]
    assert refusal.shortfalls == refusal.nearest
    assert refusal.missing_bytes == 62 * LAYER_64K - 4 * 70 * GIB
    assert refusal.shortfalls[0].remaining_bytes == 70 * GIB - 16 * LAYER_64K


def test_only_the_stages_that_miss_memory_are_shortfalls() -> None:
    refusal = unplannable(ask(uneven_model(9, 1), gib_nodes(a=8, b=7)))

    assert [stage.node_id for stage in refusal.nearest] == ["a", "b"]
    assert [stage.node_id for stage in refusal.shortfalls] == ["a"]
    assert refusal.missing_bytes == GIB + 65_536


def test_a_stage_that_just_fits_is_no_shortfall() -> None:
    refusal = unplannable(ask(uneven_model(9, 1), gib_nodes(a=8, b=8)))
    exact = Node(node_id=NodeId("b"), vram_bytes=GIB + 65_536)
    tight = unplannable(ask(uneven_model(9, 1), (*gib_nodes(a=8), exact)))

    assert len(refusal.shortfalls) == 1
    assert tight.nearest[1].remaining_bytes == 0
    assert [stage.node_id for stage in tight.shortfalls] == ["a"]


def test_one_more_node_of_the_size_named_is_just_enough() -> None:
    nodes = equal_nodes(4, 70)
    size = unplannable(ask(QWEN_480B, nodes)).one_more_node_bytes

    assert size == 6 * LAYER_64K
    enough = Node(node_id=NodeId("new"), vram_bytes=size)
    scant = Node(node_id=NodeId("new"), vram_bytes=size - 1)
    assert len(planned(ask(QWEN_480B, (*nodes, enough))).stages) == 5
    unplannable(ask(QWEN_480B, (*nodes, scant)))


def test_one_more_node_may_have_to_hold_everything() -> None:
    refusal = unplannable(ask(uneven_model(9, 9), gib_nodes(a=1)))
    assert refusal.one_more_node_bytes == 18 * GIB + 2 * 65_536


def test_one_more_node_counts_even_where_there_are_as_many_as_layers() -> None:
    refusal = unplannable(ask(uneven_model(4, 4), gib_nodes(a=3, b=2, c=2)))
    assert refusal.one_more_node_bytes == 8 * GIB + 2 * 65_536


@pytest.mark.parametrize(("min_nodes", "layers"), [(3, 4), (3, 2)])
def test_too_few_nodes_or_layers_for_min_nodes_is_said(
    min_nodes: int, layers: int
) -> None:
    model = uneven_model(*[1] * layers)
    refusal = unplannable(ask(model, gib_nodes(a=80), min_nodes=min_nodes))

    assert refusal.nearest == ()
    assert refusal.missing_bytes == 0
    assert refusal.one_more_node_bytes is None


def test_min_nodes_may_be_met_by_one_more_node() -> None:
    model = uneven_model(1, 1)
    refusal = unplannable(ask(model, gib_nodes(a=80), min_nodes=2))

    assert refusal.nearest == ()
    assert refusal.min_nodes == 2
    assert refusal.one_more_node_bytes == GIB + 65_536


def test_the_largest_context_is_the_last_step_that_fits() -> None:
    """One layer of 1 GiB and 1 KiB of cache a token in 1 GiB and a bit."""
    model = ModelShape(
        native_context=65_536,
        layer_count=1,
        weight_bytes=GIB,
        kv_bytes_per_token=1024,
    )

    def largest(spare_bytes: int) -> int:
        node = Node(node_id=NodeId("a"), vram_bytes=GIB + spare_bytes)
        return unplannable(ask(model, (node,))).largest_context

    assert largest(256 * 1024 - 1) == 0
    assert largest(256 * 1024) == 256
    assert largest(99 * 256 * 1024 + 5) == 99 * 256
    assert largest(-1) == 0


def test_a_refused_override_names_the_context_that_would_fit() -> None:
    nodes = gib_nodes(a=23, b=23)
    refusal = unplannable(ask(base_model(262_144), nodes, context=262_144))

    assert refusal.context_length == 262_144
    assert refusal.minimum_context == 65_536
    assert refusal.largest_context == 98_048
    fitting = ask(base_model(262_144), nodes, context=refusal.largest_context)
    assert planned(fitting).context_length == 98_048
    unplannable(ask(base_model(262_144), nodes, context=98_048 + 256))


def test_the_nearest_arrangement_uses_the_count_that_misses_least() -> None:
    """The tiny node would miss most of all with a layer of its own."""
    nodes = gib_nodes(a=21.5, b=21.5, tiny=0.25)
    stages = nearest_arrangement(nodes, ask(base_model(), nodes), 65_536)
    forced = nearest_arrangement(nodes, ask(base_model(), nodes, min_nodes=3), 65_536)

    assert [stage.node_id for stage in stages] == ["a", "b"]
    assert [stage.node_id for stage in forced] == ["a", "b", "tiny"]


def test_of_equal_shortages_the_one_on_fewer_nodes_is_shown() -> None:
    nodes = gib_nodes(a=8, b=8, c=8)
    stages = nearest_arrangement(nodes, ask(uneven_model(9, 1, 1), nodes), 65_536)
    assert len(stages) == 2


def test_no_more_nodes_are_tried_than_there_are_layers() -> None:
    nodes = equal_nodes(5, 2)
    assert len(nearest_arrangement(nodes, ask(uneven_model(3, 3), nodes), 65_536)) == 2


def test_a_shortage_smaller_by_one_byte_is_nearer() -> None:
    """Both layers on one node miss 3 bytes, the heavy one alone misses 2."""
    model = ModelShape(
        native_context=1,
        layer_count=2,
        weight_bytes=11,
        kv_bytes_per_token=1,
        layer_weight_bytes=(11, 0),
    )
    nodes = tuple(
        Node(node_id=NodeId(name), vram_bytes=size)
        for name, size in (("a", 10), ("b", 9))
    )
    stages = nearest_arrangement(nodes, ask(model, nodes), 1)

    assert [stage.remaining_bytes for stage in stages] == [-2, 8]
