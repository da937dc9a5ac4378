"""Routes reach every node, in order, and again when a node comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.ports import Route
from skippyd.coordination.route_announcing import RETRY_SECONDS, RouteAnnouncer
from skippyd.ids import NodeId, RunId
from support.async_cluster import AsyncCluster, running_cluster


if TYPE_CHECKING:
    from trio.testing import MockClock

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def route(term: int) -> Route:
    return Route(
        model_id="m",
        run_id=RunId(f"run-{term}"),
        term=term,
        coordinator_id=A,
        openai_base_url="http://127.0.0.1:1/v1",
    )


async def announcer_on(cluster: AsyncCluster) -> RouteAnnouncer:
    made = RouteAnnouncer(cluster.nodes[A])
    await cluster.nursery.start(made.run)
    return made


def known(cluster: AsyncCluster) -> list[int]:
    routes = [cluster.nodes[node].routes.route_of("m") for node in (B, C)]
    return [0 if found is None else found.term for found in routes]


async def test_every_node_is_told(autojump_clock: MockClock) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        announcer = await announcer_on(cluster)
        announcer.say("m", route(1))
        await trio.sleep(1)
        assert known(cluster) == [1, 1]
        announcer.say("m", None)
        await trio.sleep(1)
        assert known(cluster) == [0, 0]


async def test_only_the_newest_word_is_said_to_a_slow_node(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        cluster.wire.delay_s = 1
        announcer = await announcer_on(cluster)
        for term in (1, 2, 3):
            announcer.say("m", route(term))
        await trio.sleep(10)
        assert known(cluster) == [3, 3]


async def test_a_word_that_was_lost_is_said_again(autojump_clock: MockClock) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        announcer = await announcer_on(cluster)
        # The control connection stands, but this one message does not arrive.
        cluster.wire.control_cuts.add((A, B))
        announcer.say("m", route(1))
        await trio.sleep(1)
        assert known(cluster) == [0, 1]
        cluster.wire.control_cuts.clear()
        await trio.sleep(RETRY_SECONDS)
        assert known(cluster) == [1, 1]


async def test_a_node_that_comes_back_is_told_what_holds(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        announcer = await announcer_on(cluster)
        cluster.nodes[B].crash()
        await trio.sleep(1)
        announcer.say("m", route(1))
        announcer.say("m", attrs.evolve(route(2)))
        await trio.sleep(20)
        await cluster.start("b")
        await trio.sleep(1)
        announcer.node_returned(B)
        announcer.node_returned(A)
        await trio.sleep(1)
        assert known(cluster) == [2, 2]
