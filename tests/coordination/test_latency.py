"""Distances between nodes: measured both ways, by everybody, within a bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from skippyd.coordination.latency import MEASURE_SECONDS, measured_latencies_us
from skippyd.coordination.ports import NodeUnreachableError
from skippyd.ids import NodeId
from support.async_cluster import AsyncNode, running_cluster


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trio.testing import MockClock

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


class Measuring(AsyncNode):
    """A node whose distances are given; a missing source is unreachable."""

    ways: Mapping[NodeId, Mapping[NodeId, float]]
    wait: Callable[[NodeId], float] = staticmethod(lambda _node_id: 0.0)

    async def measure_latency_ms(
        self, node_id: NodeId, targets: Sequence[NodeId]
    ) -> Mapping[NodeId, float]:
        await trio.sleep(self.wait(node_id))
        if node_id not in self.ways:
            raise NodeUnreachableError(f"{node_id} is gone")
        return {t: ms for t, ms in self.ways[node_id].items() if t in targets}


async def measured(
    ways: Mapping[NodeId, Mapping[NodeId, float]],
    node_ids: Sequence[NodeId] = (A, B, C),
    *,
    hangs: NodeId | None = None,
) -> Mapping[NodeId, int]:
    async with running_cluster("a") as cluster:
        nodes = Measuring(cluster=cluster, own_id=A, stages=cluster.nodes[A].stages)
        nodes.ways = ways
        nodes.wait = lambda node_id: 1_000.0 if node_id == hangs else 0.0
        return await measured_latencies_us(nodes, node_ids)


async def test_a_node_is_as_far_as_the_median_of_its_ways(
    autojump_clock: MockClock,
) -> None:
    ways = {A: {B: 1.0, C: 9.0}, B: {A: 1.0, C: 9.0}, C: {A: 9.0, B: 9.0}}
    assert await measured(ways) == {A: 5_000, B: 5_000, C: 9_000}


async def test_a_node_that_cannot_measure_is_measured_by_the_others(
    autojump_clock: MockClock,
) -> None:
    ways = {A: {B: 2.0, C: 4.0}}
    assert await measured(ways) == {A: 3_000, B: 2_000, C: 4_000}


async def test_a_node_that_hangs_costs_a_bounded_time(
    autojump_clock: MockClock,
) -> None:
    at = trio.current_time()
    ways = {A: {B: 2.0}, B: {A: 2.0}, C: {A: 2.0}}
    assert await measured(ways, hangs=C) == {A: 2_000, B: 2_000}
    assert trio.current_time() - at <= MEASURE_SECONDS + 2


async def test_one_node_has_no_distance(autojump_clock: MockClock) -> None:
    assert await measured({A: {}}, [A]) == {}


async def test_what_nobody_asked_for_is_ignored(autojump_clock: MockClock) -> None:
    assert await measured({A: {B: 2.0, C: 4.0}}, [A, B]) == {A: 2_000, B: 2_000}
