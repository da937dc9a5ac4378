"""One model on its coordinator: from the wish to the route, and what happens to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.coordination import rollout_parts
from skippyd.core.coordinator.campaign_effects import Step
from skippyd.core.coordinator.messages import (
    ClaimCoordinator,
    LoadStage,
    PrepareStage,
    StopStage,
)
from skippyd.ids import NodeId
from support.async_cluster import MODEL, AsyncNode, running_cluster, wish_of_model
from support.rollout_waits import deployed, published, told


if TYPE_CHECKING:
    from trio.testing import MockClock

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def loads_seen(node: AsyncNode) -> list[LoadStage]:
    return [r for r, _ in node.stages.seen if isinstance(r, LoadStage)]


async def test_a_wish_becomes_a_route_on_every_node(autojump_clock: MockClock) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        route = await deployed(cluster)
        assert (route.coordinator_id, route.node_ids) == (A, (A, B, C))
        assert route.candidates[0] == A
        for node in cluster.nodes.values():
            assert await published(node) == route
        assert cluster.is_whole(route.node_ids, route.run_id)
        steps = [event.step for event in cluster.nodes[A].log.since(0)]
        order = [Step.PLAN, Step.PROBE, Step.PREPARE, Step.CLAIM, Step.LOAD, Step.PROVE]
        assert list(dict.fromkeys(steps)) == [*order, Step.PUBLISH]


async def test_loads_go_from_last_to_first_and_hand_ports_and_one_key_on(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        await deployed(cluster)
        ports: dict[str, list[int]] = {}
        keys = set()
        for name, node in cluster.nodes.items():
            for request, settings in node.stages.seen:
                if isinstance(request, PrepareStage):
                    assert settings is not None
                    assert settings.run_key == ""
                if isinstance(request, LoadStage):
                    assert settings is not None
                    keys.add(settings.run_key)
                    ports[name] = [stage.port for stage in settings.stages]
                    assert settings.serves_openai == (request.stage_index == 0)
        assert len(keys) == 1
        assert len(keys.pop()) == 64
        assert ports == {
            "c": [0, 0, 0],
            "b": [0, 0, 19_000],
            "a": [0, 19_000, 19_000],
        }


async def test_a_claim_leaves_only_after_its_term_is_durable(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        node = cluster.nodes[A]
        await node.rollouts.deploy(wish_of_model("a"))
        node.memory.is_full = True
        failed = await told(node, Step.FAILED)
        assert "the disk is full" in failed.message
        assert not any(isinstance(r, ClaimCoordinator) for _, _, r in cluster.sent)
        node.memory.is_full = False
        route = await published(node)
        assert node.memory.term >= route.term


async def test_a_stage_that_dies_is_replaced_at_a_newer_term_without_its_node(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        at = trio.current_time()
        cluster.nodes[C].stages.kill_stage()
        lost = await told(cluster.nodes[A], Step.FAILED, "lost c")
        assert trio.current_time() - at <= 2
        assert "killed by signal 9" in lost.message
        new = await published(cluster.nodes[A], after_term=old.term)
        assert new.node_ids == (A, B)
        assert (new.ctx_size, new.lane_count) == (old.ctx_size, old.lane_count)
        assert cluster.is_whole(new.node_ids, new.run_id)


async def test_a_node_that_is_lost_is_planned_without(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        cluster.isolate("b")
        new = await published(cluster.nodes[A], after_term=old.term)
        assert new.node_ids == (A, C)
        cluster.heal()
        await trio.sleep(5)
        # The stage that was cut off is told to stop when it can be told.
        assert not cluster.nodes[B].stages.processes
        assert cluster.nodes[B].routes.route_of(MODEL) == new


@pytest.mark.slow
async def test_a_run_without_a_replacement_is_withdrawn_after_the_grace(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        await deployed(cluster)
        at = trio.current_time()
        cluster.isolate("b")
        await told(cluster.nodes[A], Step.WITHDRAW, "no replacement")
        assert 75 <= trio.current_time() - at <= 80
        assert cluster.nodes[A].routes.route_of(MODEL) is None
        reason = cluster.nodes[A].routes.closed_reason(MODEL)
        assert "no replacement within the grace" in reason
        cluster.heal()
        again = await published(cluster.nodes[A])
        assert again.node_ids == (A, B)


@pytest.mark.slow
async def test_a_small_minority_does_not_go_on_by_itself(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        cluster.fewest_stages = 1
        await deployed(cluster)
        cluster.isolate("a")
        standing_by = await told(cluster.nodes[A], Step.PLAN, "only 1 of the 3 nodes")
        assert "standing by" in standing_by.message
        await trio.sleep(200)
        assert cluster.nodes[A].routes.route_of(MODEL) is None


async def test_withdraw_takes_the_route_then_drains_then_stops(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        route = await deployed(cluster)
        node = cluster.nodes[A]
        node.active[route.run_id] = 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.rollouts.withdraw, MODEL)
            await trio.sleep(5)
            assert all(n.routes.route_of(MODEL) is None for n in cluster.nodes.values())
            assert cluster.is_whole(route.node_ids, route.run_id)
            node.active.clear()
        await trio.sleep(1)
        assert not any(n.stages.processes for n in cluster.nodes.values())
        assert node.memory.wishes() == ()
        assert node.rollouts.states()[0].phase == "idle"


@pytest.mark.slow
async def test_a_drain_that_does_not_end_is_cut_short(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        route = await deployed(cluster)
        node = cluster.nodes[A]
        node.active[route.run_id] = 1
        at = trio.current_time()
        await node.rollouts.withdraw(MODEL)
        assert 60 <= trio.current_time() - at <= 62
        assert any(isinstance(r, StopStage) for _, _, r in cluster.sent)


async def test_a_draining_node_is_left_out_of_the_next_plan(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        cluster.nodes[B].stages.is_draining = True
        route = await deployed(cluster)
        assert route.node_ids == (A, C)


async def test_a_node_that_drains_is_moved_away_from_and_stays_away(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        node = cluster.nodes[A]
        cluster.nodes[C].stages.drain()
        new = await published(node, after_term=old.term)
        assert new.node_ids == (A, B)
        assert cluster.is_whole(new.node_ids, new.run_id)
        await trio.sleep(5)
        assert not cluster.nodes[C].stages.processes
        said = [event for event in node.log.since(0) if event.step is Step.FAILED]
        assert said == []
        cluster.nodes[C].stages.drain(is_over=True)
        await trio.sleep(100)
        assert node.routes.route_of(MODEL) == new


async def test_a_chain_goes_on_while_nothing_can_stand_in_for_a_draining_node(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        route = await deployed(cluster)
        cluster.nodes[B].stages.drain()
        standing_by = await told(cluster.nodes[A], Step.PLAN, "standing by")
        await trio.sleep(200)
        assert cluster.nodes[A].routes.route_of(MODEL) == route
        assert cluster.is_whole(route.node_ids, route.run_id)
        assert "standing by" in standing_by.message
        cluster.nodes[B].stages.drain(is_over=True)
        await trio.sleep(100)
        assert cluster.nodes[A].routes.route_of(MODEL) == route


async def test_a_stage_that_its_operator_stopped_does_not_come_back_by_itself(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        node, stages = cluster.nodes[A], cluster.nodes[C].stages
        stages.stopped_runs = (old.run_id,)
        stages.kill_stage()
        new = await published(node, after_term=old.term)
        assert new.node_ids == (A, B)
        cluster.isolate("b")
        await told(node, Step.PLAN, "standing by")
        await trio.sleep(60)
        assert not stages.processes
        assert await node.rollouts.deploy(wish_of_model("a")) is None
        again = await published(node, after_term=new.term)
        assert again.node_ids == (A, C)


async def test_a_failure_that_would_repeat_ends_the_wish_until_it_is_said_again(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        node, stages = cluster.nodes[A], cluster.nodes[C].stages
        stages.opens_something_else = True
        await node.rollouts.deploy(wish_of_model("a"))
        await told(node, Step.FAILED)
        await trio.sleep(100)
        assert not any(state.is_wanted for state in node.rollouts.states())
        assert node.memory.wishes() == ()
        assert node.routes.route_of(MODEL) is None
        stages.opens_something_else = False
        assert await node.rollouts.deploy(wish_of_model("a")) is not None
        assert C in (await published(node)).node_ids


async def test_the_story_of_a_load_that_fails_is_told_and_tried_again(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        cluster.nodes[C].stages.paces.load_s = 5
        await cluster.nodes[A].rollouts.deploy(wish_of_model("a"))
        await told(cluster.nodes[A], Step.LOAD, "stage-2")
        cluster.nodes[C].crash()
        failed = await told(cluster.nodes[A], Step.FAILED)
        assert "c" in failed.message
        route = await published(cluster.nodes[A])
        assert route.node_ids == (A, B)


@pytest.mark.parametrize("load_s", [0.2, 30.0])
async def test_a_withdraw_during_a_deployment_ends_it(
    autojump_clock: MockClock, load_s: float
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        node = cluster.nodes[A]
        for each in cluster.nodes.values():
            each.stages.paces.load_s = load_s
        await node.rollouts.deploy(wish_of_model("a"))
        await told(node, Step.LOAD)
        await node.rollouts.withdraw(MODEL)
        await trio.sleep(1)
        assert not any(n.stages.processes for n in cluster.nodes.values())
        assert loads_seen(cluster.nodes[C])
        assert not loads_seen(node)


@pytest.mark.slow
async def test_what_is_told_calls_nodes_by_their_names(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tuple(NodeId(digit * 64) for digit in "abc")
    called = dict(zip(ids, ("atlas", "borea", "corvo"), strict=True))
    monkeypatch.setattr(rollout_parts, "known_names", lambda _nodes: called)
    async with running_cluster(*ids) as cluster:
        first = cluster.nodes[ids[0]]
        await first.rollouts.deploy(wish_of_model(ids[0]))
        await published(first)
        cluster.nodes[ids[2]].stages.kill_stage()
        lost = await told(first, Step.FAILED, "lost corvo (cccccccccccc): ")
        assert lost.node_id == ids[2]
        events = first.log.since(0)
        assert not [e for e in events if any(node_id in e.message for node_id in ids)]
        assert "corvo (cccccccccccc)" in first.routes.closed_reason(MODEL)
