"""A lost coordinator: who takes over, when, and what happens when it comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.coordination.failover import wish_of
from skippyd.core.coordinator.instant import MAX_LEASE_MS
from skippyd.errors import RefusedError
from skippyd.ids import NodeId
from support.async_cluster import (
    MODEL,
    AsyncNode,
    running_cluster,
    wish_of_model,
)
from support.rollout_waits import deployed, published


if TYPE_CHECKING:
    from trio.testing import MockClock

pytestmark = pytest.mark.slow  # long histories, though on a virtual clock

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
GIB = 1024**3


def wishes(node: AsyncNode) -> list[str]:
    return [wish.model_id for wish in node.memory.wishes()]


async def test_the_next_candidate_takes_over_from_a_coordinator_that_died(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        cluster.nodes[C].stages.memory_bytes = 64 * GIB
        old = await deployed(cluster)
        assert old.candidates == (A, C, B)
        at = trio.current_time()
        cluster.nodes[A].crash()
        new = await published(cluster.nodes[B], after_term=old.term)
        assert trio.current_time() - at < 15
        assert (new.coordinator_id, new.node_ids) == (C, (C, B))
        assert (new.ctx_size, new.lane_count) == (old.ctx_size, old.lane_count)
        assert wishes(cluster.nodes[B]) == []
        assert wishes(cluster.nodes[C]) == [MODEL]


async def test_a_candidate_that_drains_takes_nothing_over(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        cluster.nodes[C].stages.memory_bytes = 64 * GIB
        old = await deployed(cluster)
        assert old.candidates == (A, C, B)
        cluster.nodes[C].stages.drain()
        # The coordinator goes before it could move the stage away.
        cluster.nodes[A].crash()
        await trio.sleep(100)
        assert wishes(cluster.nodes[C]) == []
        assert wishes(cluster.nodes[B]) == [MODEL]


async def test_an_old_coordinator_that_comes_back_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        cluster.nodes[A].crash()
        new = await published(cluster.nodes[C], after_term=old.term)
        await cluster.start("a")
        await trio.sleep(300)
        for node in cluster.nodes.values():
            assert node.routes.route_of(MODEL) == new
        assert cluster.is_whole(new.node_ids, new.run_id)
        state = cluster.nodes[A].rollouts.states()[0]
        assert (state.phase, state.is_wanted) == ("planning", True)
        assert "serves it" in state.last_report


async def test_an_isolated_coordinator_is_replaced_and_gives_way_when_healed(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        cluster.isolate("a")
        new = await published(cluster.nodes[B], after_term=old.term)
        assert new.node_ids == (B, C)
        cluster.heal()
        await trio.sleep(120)
        for node in cluster.nodes.values():
            assert node.routes.route_of(MODEL) == new
        assert not cluster.nodes[A].stages.processes


async def test_one_way_is_enough_to_lose_a_coordinator(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        cluster.cut("a", "b", is_one_way=True)
        cluster.cut("a", "c", is_one_way=True)
        new = await published(cluster.nodes[C], after_term=old.term)
        assert new.coordinator_id == B


async def test_a_healthy_chain_is_watched_not_claimed_away(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c", look_s=10) as cluster:
        old = await deployed(cluster)
        cluster.nodes[A].freeze()
        cluster.cut_control("a")
        await trio.sleep(1_000)
        assert wishes(cluster.nodes[B]) == [MODEL]
        assert cluster.nodes[B].rollouts.states()[0].phase == "planning"
        assert cluster.nodes[C].routes.route_of(MODEL) == old
        assert cluster.is_whole(old.node_ids, old.run_id)
        cluster.heal()
        await trio.sleep(60)
        said = cluster.nodes[B].rollouts.states()[0].last_report
        assert "is back" in said or "serves it" in said
        assert cluster.nodes[C].routes.route_of(MODEL) == old


async def test_a_watched_chain_is_claimed_when_half_of_its_lease_is_gone(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c", look_s=300) as cluster:
        old = await deployed(cluster)
        half_s = MAX_LEASE_MS / 2_000
        cluster.nodes[A].freeze()
        cluster.cut_control("a")
        await trio.sleep(1)
        at = trio.current_time()
        watch = cluster.nodes[C].rollouts.parts.guard
        assert await watch.reason_to_wait(wish_of(old)) is None
        assert half_s - 2 <= trio.current_time() - at <= half_s


async def test_a_watched_chain_is_claimed_when_a_stage_is_lost(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        cluster.nodes[A].freeze()
        cluster.cut_control("a")
        await trio.sleep(1)
        watch = cluster.nodes[C].rollouts.parts.guard
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.reason_to_wait, wish_of(old))
            await trio.sleep(20)
            at = trio.current_time()
            cluster.nodes[B].stages.kill_stage()
        assert trio.current_time() - at < 2


async def test_a_model_is_withdrawn_where_it_is_coordinated_and_ends_everywhere(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        cluster.nodes[A].crash()
        new = await published(cluster.nodes[C], after_term=old.term)
        await cluster.start("a")
        await trio.sleep(60)
        with pytest.raises(RefusedError, match=r"coordinated by name of b \(b\)"):
            await cluster.nodes[A].rollouts.withdraw(MODEL)
        await cluster.nodes[new.coordinator_id].rollouts.withdraw(MODEL)
        await trio.sleep(200)
        assert all(wishes(node) == [] for node in cluster.nodes.values())
        assert not any(node.stages.processes for node in cluster.nodes.values())


async def test_a_coordinator_that_restarts_alone_resumes_its_wish(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        old = await deployed(cluster)
        cluster.nodes[A].crash()
        await trio.sleep(0.1)
        await cluster.start("a")
        new = await published(cluster.nodes[A], after_term=old.term)
        assert new.coordinator_id in {A, B}
        await trio.sleep(120)
        routes = [node.routes.route_of(MODEL) for node in cluster.nodes.values()]
        assert routes[0] == routes[1]
        assert routes[0] is not None
        assert cluster.is_whole(routes[0].node_ids, routes[0].run_id)


async def test_a_second_deploy_says_who_serves_already(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        await deployed(cluster)
        with pytest.raises(RefusedError, match=r"by coordinator name of a \(a\)"):
            await cluster.nodes[B].rollouts.deploy(wish_of_model("b"))
        assert await cluster.nodes[A].rollouts.deploy(wish_of_model("a")) is None
        with pytest.raises(RefusedError, match="withdraw it first"):
            await cluster.nodes[A].rollouts.deploy(wish_of_model("a", context=512))
