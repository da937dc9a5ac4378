"""What operators ask of a coordinator, and what it remembers over a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.coordination import node_words
from skippyd.coordination.rollout_parts import fresh_jitter
from skippyd.coordination.rollout_wishes import CoordinatorFileError
from skippyd.core.coordinator.campaign_effects import Step
from skippyd.errors import RefusedError
from skippyd.ids import NodeId
from support.async_cluster import MODEL, running_cluster, wish_of_model
from support.rollout_waits import deployed, published, told


if TYPE_CHECKING:
    from trio.testing import MockClock

    from skippyd.coordination.rollouts import Rollouts

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


async def test_nodes_are_meant_by_name_or_by_the_start_of_their_id(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        rollouts: Rollouts = cluster.nodes[A].rollouts
        assert rollouts.resolve_nodes(["name of b", "a", "b"]) == (B, A)
        for text in ("", "nobody"):
            with pytest.raises(RefusedError, match=r"no node; known are .*name of a"):
                rollouts.resolve_nodes([text])


async def test_refusals_call_nodes_by_their_names(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = NodeId("a" * 64), NodeId("b" * 64)
    called = {own: "atlas", other: "borea"}
    monkeypatch.setattr(node_words, "known_names", lambda _nodes: called)
    async with running_cluster(own, other) as cluster:
        rollouts = cluster.nodes[own].rollouts
        without_own = wish_of_model(own, node_ids=(other,))
        for ask in (rollouts.dry_run, rollouts.deploy):
            with pytest.raises(RefusedError, match=r"leave out atlas \(a{12}\), this"):
                await ask(without_own)


async def test_a_dry_run_plans_and_changes_nothing(autojump_clock: MockClock) -> None:
    async with running_cluster("a", "b") as cluster:
        node = cluster.nodes[A]
        planned = await node.rollouts.dry_run(wish_of_model("a"))
        await trio.sleep(10)
        assert planned.campaign_plan.node_ids == (A, B)
        assert cluster.sent == []
        assert (node.memory.wishes(), node.rollouts.states()) == ((), ())


async def test_a_deploy_that_cannot_be_planned_leaves_nothing_behind(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a") as cluster:
        node = cluster.nodes[A]
        with pytest.raises(RefusedError, match="only 1 node"):
            await node.rollouts.deploy(wish_of_model("a"))
        assert (node.memory.wishes(), node.rollouts.states()) == ((), ())


async def test_a_wish_that_cannot_be_kept_is_refused(autojump_clock: MockClock) -> None:
    async with running_cluster("a", "b") as cluster:
        node = cluster.nodes[A]
        node.memory.is_full = True
        with pytest.raises(CoordinatorFileError, match="full"):
            await node.rollouts.deploy(wish_of_model("a"))
        assert node.rollouts.states() == ()


async def test_what_is_not_deployed_cannot_be_withdrawn(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        with pytest.raises(RefusedError, match="deployed are: none"):
            await cluster.nodes[A].rollouts.withdraw(MODEL)


async def test_a_model_is_deployed_again_after_a_withdrawal(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        node = cluster.nodes[A]
        first = await deployed(cluster)
        await node.rollouts.withdraw(MODEL)
        await node.rollouts.deploy(wish_of_model("a", context=512))
        second = await published(node, after_term=first.term)
        assert second.ctx_size == 512
        assert cluster.is_whole(second.node_ids, second.run_id)


async def test_a_model_whose_stage_is_stopped_here_is_wanted_no_more(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        node = cluster.nodes[A]
        assert not await node.rollouts.give_up(MODEL)
        await deployed(cluster)

        assert await node.rollouts.give_up(MODEL)
        node.stages.kill_stage()
        await trio.sleep(200)

        assert node.memory.wishes() == ()
        assert node.routes.route_of(MODEL) is None
        assert not any(n.stages.processes for n in cluster.nodes.values())
        assert not await node.rollouts.give_up(MODEL)
        await node.rollouts.deploy(wish_of_model("a"))
        await published(node)


async def test_stopping_withdraws_but_remembers(autojump_clock: MockClock) -> None:
    async with running_cluster("a", "b") as cluster:
        node = cluster.nodes[A]
        await deployed(cluster)
        await node.rollouts.stop()
        await trio.sleep(1)
        assert not any(n.stages.processes for n in cluster.nodes.values())
        assert [wish.model_id for wish in node.memory.wishes()] == [MODEL]
        cluster.nodes[A].crash()
        await cluster.start("a")
        assert (await published(node)).coordinator_id == A


async def test_a_coordinator_that_leaves_hands_over_to_the_next_candidate(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        node = cluster.nodes[A]
        node.stages.is_draining = True
        await node.rollouts.stop()
        at = trio.current_time()
        new = await published(cluster.nodes[C], after_term=old.term)
        assert trio.current_time() - at < 5
        assert new.node_ids == (B, C)
        assert [wish.model_id for wish in node.memory.wishes()] == [MODEL]
        assert not node.stages.processes
        node.stages.is_draining = False
        await node.rollouts.resume()
        await trio.sleep(50)
        (state,) = node.rollouts.states()
        assert state.is_wanted
        assert "serves it" in state.last_report
        assert node.routes.route_of(MODEL) == new


async def test_what_ran_is_remembered_with_its_nodes(autojump_clock: MockClock) -> None:
    async with running_cluster("a", "b") as cluster:
        await deployed(cluster)
        await trio.sleep(1)
        (wish,) = cluster.nodes[A].memory.wishes()
        assert wish.ran_on == (A, B)


async def test_states_show_how_far_a_model_is(autojump_clock: MockClock) -> None:
    async with running_cluster("a", "b") as cluster:
        node = cluster.nodes[A]
        node.stages.paces.load_s = 30
        await node.rollouts.deploy(wish_of_model("a"))
        await told(node, Step.LOAD)
        (state,) = node.rollouts.states()
        assert (state.phase, state.is_wanted) == ("loading", True)
        assert state.run is not None
        await published(node)
        await trio.sleep(1)
        (state,) = node.rollouts.states()
        assert (state.phase, state.wish.model_id) == ("serving", MODEL)


def test_jitter_is_a_share() -> None:
    drawn = [fresh_jitter() for _ in range(100)]
    assert all(0 <= number < 1 for number in drawn)
    assert len(set(drawn)) == 100
