"""Nodes that meet over real TLS: requests, status, loss, measurements, routes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.coordination.control_client import STALL_S
from skippyd.coordination.ports import (
    ModelEntry,
    NodeChanged,
    Nodes,
    NodeUnreachableError,
    Route,
    StageRunSettings,
)
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    Origin,
    StageStopped,
)
from skippyd.core.coordinator.verdict import Accepted
from skippyd.ids import NodeId, RunId
from support.claims import claim, load_of, stop_of
from support.control_nodes import (
    QUICK,
    acquaint,
    listen,
    make_node,
    running_nodes,
    until_available,
)


if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


async def test_three_nodes_see_each_other(tmp_path: Path) -> None:
    async with running_nodes(tmp_path, "a", "b", "c") as nodes:
        for node in nodes:
            for other in nodes:
                await until_available(node, other)
        a, b, c = nodes
        assert set(a.registry.reports()) == {a.node_id, b.node_id, c.node_id}
        assert a.registry.reports()[b.node_id].name == "b"
        assert [info.node_id for info in a.registry.peers()] == sorted(
            [b.node_id, c.node_id]
        )


def test_a_registry_is_what_a_rollout_asks_for(tmp_path: Path) -> None:
    node = make_node(tmp_path, "a")
    nodes: Nodes = node.registry
    assert nodes.own_id == node.node_id
    assert nodes.peers() == ()


async def test_a_report_too_long_for_a_message_is_told_without_its_models(
    tmp_path: Path,
) -> None:
    async with running_nodes(tmp_path, "a", "b") as (a, b):
        await until_available(a, b)
        model = ModelEntry(name="m" * 200, path="/" * 200, bytes=1, sha256=None)
        many = attrs.evolve(b.stages.said, models=(model,) * 4000, is_draining=True)
        with a.registry.subscribe() as changes:
            b.stages.say(many)
            while not a.registry.reports()[b.node_id].is_draining:
                await changes.receive()
        assert a.registry.reports()[b.node_id].models == ()


async def test_the_path_really_used_is_told(tmp_path: Path) -> None:
    async with running_nodes(tmp_path, "a", "b") as (a, b):
        await until_available(a, b)
        (info,) = a.registry.peers()
        assert (info.local_address, info.interface) == ("127.0.0.1", "lo")
        assert info.last_heard_unix_ms == 1_700_000_000_000
        while (rtt_ms := a.registry.peers()[0].rtt_ms) is None:
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert 0 < rtt_ms < 1000


async def test_a_request_reaches_the_other_stage_side_and_comes_back(
    tmp_path: Path,
) -> None:
    async with running_nodes(tmp_path, "a", "b") as (a, b):
        await until_available(a, b)
        offered = claim(coordinator=a.node_id)
        reply = await a.registry.request(
            b.node_id, ClaimCoordinator(offered), timeout_s=5
        )
        assert reply == ClaimAnswer(verdict=Accepted(offered), instance_id="store of b")
        assert b.stages.asked == [(ClaimCoordinator(offered), Origin.NETWORK, None)]
        stop = stop_of(load_of(offered))
        assert await a.registry.request(b.node_id, stop, timeout_s=5) == StageStopped(
            stop.stage
        )


async def test_the_own_node_is_asked_without_a_wire(tmp_path: Path) -> None:
    node = make_node(tmp_path, "a")
    settings = StageRunSettings(
        model_sha256="ab" * 32, model_id="m", ctx_size=1, lane_count=1
    )
    offered = ClaimCoordinator(claim(coordinator=node.node_id))
    reply = await node.registry.request(node.node_id, offered, settings, timeout_s=5)
    assert isinstance(reply, ClaimAnswer)
    assert node.stages.asked == [(offered, Origin.NETWORK, settings)]


async def test_a_node_claims_for_itself_only(tmp_path: Path) -> None:
    async with running_nodes(tmp_path, "a", "b") as (a, b):
        await until_available(a, b)
        stolen = ClaimCoordinator(claim(coordinator=b.node_id))
        with pytest.raises(NodeUnreachableError, match="claims for itself only"):
            await a.registry.request(b.node_id, stolen, timeout_s=5)
        assert b.stages.asked == []


async def test_an_answer_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    async with running_nodes(tmp_path, "a", "b") as (a, b):
        await until_available(a, b)
        b.stages.held = trio.Event()
        offered = ClaimCoordinator(claim(coordinator=a.node_id))
        with pytest.raises(NodeUnreachableError, match="within"):
            await a.registry.request(b.node_id, offered, timeout_s=0.2)
        b.stages.held.set()
        reply = await a.registry.request(b.node_id, offered, timeout_s=5)
        assert isinstance(reply, ClaimAnswer)


async def test_a_stranger_cannot_be_asked(tmp_path: Path) -> None:
    node = make_node(tmp_path, "a")
    offered = ClaimCoordinator(claim(coordinator=node.node_id))
    with pytest.raises(NodeUnreachableError, match="not a peer"):
        await node.registry.request(NodeId("ab" * 32), offered, timeout_s=1)


async def test_a_change_is_told_at_once_and_unchanged_status_costs_little(
    tmp_path: Path,
) -> None:
    slow = attrs.evolve(QUICK, status_every_s=30.0)
    async with running_nodes(tmp_path, "a", "b", timers=slow) as (a, b):
        await until_available(a, b)
        with a.registry.subscribe() as changes:
            b.stages.say(attrs.evolve(b.stages.said, is_draining=True))
            with trio.fail_after(5):
                assert await changes.receive() == NodeChanged(b.node_id, True)
        assert a.registry.reports()[b.node_id].is_draining


async def test_own_changes_are_told_too(tmp_path: Path) -> None:
    async with running_nodes(tmp_path, "a") as (a,):
        with a.registry.subscribe() as changes:
            await trio.testing.wait_all_tasks_blocked()
            a.stages.say(attrs.evolve(a.stages.said, is_draining=True))
            with trio.fail_after(5):
                assert await changes.receive() == NodeChanged(a.node_id, True)


async def test_a_node_that_dies_is_noticed_at_once_and_found_again(
    tmp_path: Path,
) -> None:
    async with running_nodes(tmp_path, "a", "b") as (a, b), trio.open_nursery() as more:
        await until_available(a, b)
        begun = trio.current_time()
        b.die()
        await until_available(a, b, is_available=False)
        assert trio.current_time() - begun < 2
        (info,) = a.registry.peers()
        assert info.reason
        offered = ClaimCoordinator(claim(coordinator=a.node_id))
        with pytest.raises(NodeUnreachableError, match="cannot be reached"):
            await a.registry.request(b.node_id, offered, timeout_s=1)
        await more.start(b.run, await listen(b, b.port))
        await until_available(a, b)
        assert a.registry.peers()[0].reason == ""
        b.die()


async def test_open_requests_fail_when_the_node_dies(tmp_path: Path) -> None:
    async with running_nodes(tmp_path, "a", "b") as (a, b):
        await until_available(a, b)
        b.stages.held = trio.Event()
        offered = ClaimCoordinator(claim(coordinator=a.node_id))

        async def ask() -> None:
            with pytest.raises(NodeUnreachableError, match="was lost during claim"):
                await a.registry.request(b.node_id, offered, timeout_s=60)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while not b.stages.asked:
                await trio.testing.wait_all_tasks_blocked(0.01)
            b.die()
        assert len(b.stages.asked) == 1


async def test_a_node_that_falls_silent_is_lost_within_the_bound(
    tmp_path: Path,
) -> None:
    """Its connection stays open, as when a machine hangs."""
    mute = attrs.evolve(QUICK, status_every_s=60.0)
    a, b = make_node(tmp_path, "a"), make_node(tmp_path, "b", timers=mute)
    listeners = [await listen(a), await listen(b)]
    acquaint(a, b)
    async with trio.open_nursery() as nursery:
        await nursery.start(a.run, listeners[0])
        await nursery.start(b.run, listeners[1])
        await until_available(a, b)
        begun = trio.current_time()
        await until_available(a, b, is_available=False)
        assert 0.3 < trio.current_time() - begun < 3
        assert a.registry.peers()[0].reason == "said nothing for 0.5 s"
        nursery.cancel_scope.cancel()


async def test_a_node_that_was_stopped_itself_takes_nobody_for_lost(
    tmp_path: Path,
) -> None:
    """What the others said meanwhile lies unread."""
    timers = attrs.evolve(QUICK, status_every_s=0.3, missed_for_silence=3)
    async with running_nodes(tmp_path, "a", "b", timers=timers) as (a, b):
        await until_available(a, b)
        with a.registry.subscribe() as changes:
            # The whole process stands still, as after SIGSTOP.
            time.sleep(timers.silence_s + STALL_S + 0.2)  # noqa: ASYNC251
            with trio.move_on_after(timers.silence_s):
                while (await changes.receive()).is_available:
                    await trio.lowlevel.checkpoint()
                pytest.fail("a node was taken for lost")
        assert b.node_id in a.registry.reports()


async def test_latency_is_measured_between_the_stages_addresses(
    tmp_path: Path,
) -> None:
    async with running_nodes(tmp_path, "a", "b", "c") as (a, b, c):
        for node in (a, b):
            for other in (a, b, c):
                await until_available(node, other)
        stranger = NodeId("ab" * 32)
        own = await a.registry.measure_latency_ms(
            a.node_id, [b.node_id, c.node_id, stranger]
        )
        asked = await a.registry.measure_latency_ms(b.node_id, [a.node_id, c.node_id])
        assert set(own) == {b.node_id, c.node_id}
        assert set(asked) == {a.node_id, c.node_id}
        assert all(0 < found < 1000 for found in [*own.values(), *asked.values()])


async def test_a_route_is_heard_with_the_sender_that_tls_has_seen(
    tmp_path: Path,
) -> None:
    route = Route(
        model_id="m",
        run_id=RunId("run"),
        term=2**62 + 1,
        coordinator_id=NodeId("somebody else"),
        openai_base_url="http://127.0.0.1:9337/v1",
    )
    async with running_nodes(tmp_path, "a", "b") as (a, b):
        await until_available(a, b)
        await a.registry.announce_route(b.node_id, route, "m")
        await a.registry.announce_route(b.node_id, None, "m")
        await a.registry.announce_route(a.node_id, route, "m")
        assert b.routes.heard == [(a.node_id, route, "m"), (a.node_id, None, "m")]
        assert a.routes.heard == [(a.node_id, route, "m")]


async def test_trust_is_gained_and_lost_without_a_restart(tmp_path: Path) -> None:
    async with running_nodes(tmp_path, "a", "b", is_acquainted=False) as (a, b):
        assert set(a.registry.reports()) == {a.node_id}
        acquaint(a, b)
        await until_available(a, b)
        await until_available(b, a)
        b.peers.remove(a.node_id)
        await until_available(a, b, is_available=False)
        with trio.fail_after(5):
            while "certificate" not in a.registry.peers()[0].reason:
                await trio.testing.wait_all_tasks_blocked(0.02)
        assert b.registry.peers() == ()


async def test_a_reader_that_lags_misses_nothing_that_still_matters(
    tmp_path: Path,
) -> None:
    async with running_nodes(tmp_path, "a") as (a,):
        changes = a.registry.subscribe()
        await trio.testing.wait_all_tasks_blocked()
        for number in range(50):
            a.stages.say(attrs.evolve(a.stages.said, sequence=number))
            await trio.testing.wait_all_tasks_blocked()
        assert changes.statistics().current_buffer_used == 1
        await changes.receive()
        a.stages.say(attrs.evolve(a.stages.said, sequence=99))
        assert await changes.receive() == NodeChanged(a.node_id, True)
