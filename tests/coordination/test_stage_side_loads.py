"""Loads, fences and restarts of a node's stages, with processes that are played."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.coordination.stage_processes import StageGone
from skippyd.core.coordinator.echo import echo_differences
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    LoadFailed,
    Origin,
    StageReady,
    StageState,
    StageStopped,
    StopFailed,
)
from skippyd.core.coordinator.reasons import LoadRefusalReason
from skippyd.core.coordinator.verdict import (
    FencingInProgress,
    Superseded,
)
from skippyd.ids import Term, UnixMs
from support.stage_nodes import (
    FakeSupervisor,
    Plan,
    refusal,
    small_plan,
    stage_node,
    states,
    stop_of,
    stored_term,
    virtual_instant,
)


if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from skippyd.core.coordinator.messages import Reply


pytestmark = pytest.mark.slow  # each has a store whose every commit is synced


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A small model in two stages."""
    return small_plan(tmp_path_factory.mktemp("models"))


# Loads.


async def test_a_loaded_stage_echoes_what_it_really_opened(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan) as node:
        ready = await node.serve(10)
        (report,) = node.stages.report().stages
        launch = node.supervisor.children[0].launch

    assert isinstance(ready, StageReady)
    assert echo_differences(plan.load(10, 1), ready.status) == ()
    assert report.status == ready.status
    assert report.loaded_bytes == report.total_bytes > 0
    assert report.pid == 1000
    assert set(launch.documents) == {"--config"}
    assert plan.run_key.encode() in launch.documents["--config"]
    assert plan.run_key not in repr(launch)


async def test_a_node_with_another_build_shows_it_in_its_echo(
    tmp_path: Path, plan: Plan
) -> None:
    build = attrs.evolve(plan.build, llama_cpp_build="llama.cpp other")
    theirs = attrs.evolve(plan, build=build)
    async with stage_node(tmp_path, plan) as node:
        await node.claim(10)
        node.supervisor.serves_at_once = True
        ready = await node.ask(theirs.load(10, 1))

    assert isinstance(ready, StageReady)
    (difference,) = echo_differences(theirs.load(10, 1), ready.status)
    assert difference.field == "admission"


async def test_without_a_claim_nothing_starts(tmp_path: Path, plan: Plan) -> None:
    async with stage_node(tmp_path, plan) as node:
        reply = await node.ask(plan.load(10, 1))

    assert "requires an accepted coordinator claim" in refusal(reply)
    assert node.supervisor.children == []


async def test_a_stage_that_dies_while_it_loads_says_why(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan) as node, trio.open_nursery() as nursery:
        await node.claim(10)
        replies: list[Reply] = []

        async def load() -> None:
            replies.append(await node.ask(plan.load(10, 1)))

        nursery.start_soon(load)
        child = await node.supervisor.next_child()
        assert states(node) == [StageState.STARTING]
        child.tell(StageGone("stage-1 (pid 1000) exited with 6: cut not offered"))
        await node.until(lambda: states(node) == [StageState.FAILED])
        (report,) = node.stages.report().stages

    assert "exited with 6: cut not offered" in refusal(replies[0])
    assert report.reason == "stage-1 (pid 1000) exited with 6: cut not offered"
    assert report.pid is None


async def test_a_node_without_the_model_says_exactly_what_is_missing(
    tmp_path: Path, plan: Plan
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    async with stage_node(tmp_path / "state", plan, models=(empty,)) as node:
        await node.claim(10)
        text = refusal(await node.ask(plan.load(10, 1)))

    assert "this node lacks layers 3 to 6 of org/model" in text
    assert f"no file with SHA-256 {plan.sha256} in {empty}" in text
    assert "name its folder in [models] paths" in text


async def test_a_load_without_settings_is_refused(tmp_path: Path, plan: Plan) -> None:
    async with stage_node(tmp_path, plan) as node:
        await node.claim(10)
        reply = await node.stages.request(plan.load(10, 1), origin=Origin.NETWORK)

    assert "without its run settings" in refusal(reply)


async def test_a_process_that_cannot_start_fails_its_load(
    tmp_path: Path, plan: Plan
) -> None:
    supervisor = FakeSupervisor(failure="no memory for another process")
    async with stage_node(tmp_path, plan, supervisor=supervisor) as node:
        await node.claim(10)
        reply = await node.ask(plan.load(10, 1))

    assert "no memory for another process" in refusal(reply)


async def test_a_model_replaced_while_it_loads_is_never_served(tmp_path: Path) -> None:
    plan = small_plan(tmp_path / "models")
    async with stage_node(tmp_path / "state", plan) as node, trio.open_nursery() as n:
        await node.claim(10)
        replies: list[Reply] = []

        async def load() -> None:
            replies.append(await node.ask(plan.load(10, 1)))

        n.start_soon(load)
        child = await node.supervisor.next_child()
        plan.path.write_bytes(plan.path.read_bytes())
        child.serve()

    assert child.orders == ["kill"]
    assert "it was killed" in refusal(replies[0])


# Fencing.


async def test_a_newer_claim_answers_when_the_old_process_is_reaped(
    tmp_path: Path, plan: Plan
) -> None:
    order: list[str] = []
    supervisor = FakeSupervisor(is_obedient=False)
    async with (
        stage_node(tmp_path, plan, supervisor=supervisor, reach=order.append) as node,
        trio.open_nursery() as nursery,
    ):
        await node.serve(10)
        order.clear()

        async def claim() -> None:
            answer = await node.claim(11)
            assert isinstance(answer, ClaimAnswer)
            assert answer.verdict == Superseded(answer.verdict.claim, Term(10))
            order.append("answered")

        nursery.start_soon(claim)
        await node.until(lambda: states(node) == [StageState.STOPPING])
        child = supervisor.children[0]
        assert child.orders == ["kill"]
        (report,) = node.stages.report().stages
        assert report.reason == "superseded by newer coordinator term 11"
        assert stored_term(tmp_path) == 11
        order.append("reaped")
        child.tell(StageGone("killed"))

    assert order == [
        "before-commit",
        "after-commit",
        "reaped",
        "after-kill",
        "answered",
    ]


async def test_a_process_that_will_not_die_is_not_waited_for_ever(
    tmp_path: Path, plan: Plan, mock_clock: MockClock
) -> None:
    mock_clock.rate = 50
    supervisor = FakeSupervisor(is_obedient=False)
    async with stage_node(tmp_path, plan, supervisor=supervisor) as node:
        await node.serve(10)
        began = trio.current_time()
        answer = await node.claim(11)
        waited_s = trio.current_time() - began

    assert isinstance(answer, ClaimAnswer)
    assert isinstance(answer.verdict, FencingInProgress)
    assert stored_term(tmp_path) == 11
    assert waited_s < 10


async def test_a_stop_is_kind_and_final(tmp_path: Path, plan: Plan) -> None:
    async with stage_node(tmp_path, plan) as node:
        await node.serve(10)
        load = plan.load(10, 1)
        stale = await node.ask(attrs.evolve(stop_of(load), coordinator_term=Term(9)))
        stopped = await node.ask(stop_of(load))
        late = await node.ask(load)

    assert isinstance(stale, StopFailed)
    assert stopped == StageStopped(load.stage)
    assert node.supervisor.children[0].orders[-1] == "terminate"
    assert isinstance(late, LoadFailed)
    assert late.refusal.reason is LoadRefusalReason.RUN_STOPPED
    assert node.stages.report().stages == ()


# Restarts.


async def test_a_stage_that_dies_serving_is_loaded_again_on_its_port(
    tmp_path: Path, plan: Plan, mock_clock: MockClock
) -> None:
    mock_clock.rate = 20
    async with stage_node(tmp_path, plan) as node:
        ready = await node.serve(10)
        assert isinstance(ready, StageReady)
        node.supervisor.spawned = trio.Event()
        node.supervisor.children[0].tell(StageGone("stage-1 was ended by SIGKILL"))
        await node.until(lambda: states(node) == [StageState.FAILED])
        (failed,) = node.stages.report().stages
        child = await node.supervisor.next_child()
        child.serve()
        await node.until(lambda: states(node) == [StageState.READY])
        (again,) = node.stages.report().stages

    assert "was ended by SIGKILL" in failed.reason
    assert "restart 1 of 5 in 1 s if its claim still holds" in failed.reason
    assert again.status == ready.status
    assert (again.restarts, again.reason, again.pid) == (1, "", 1001)


async def test_restarts_have_a_limit(
    tmp_path: Path, plan: Plan, mock_clock: MockClock
) -> None:
    mock_clock.rate = 100
    async with stage_node(tmp_path, plan) as node:
        await node.serve(10)
        node.supervisor.spawned = trio.Event()
        node.supervisor.children[0].tell(StageGone("died"))
        for _ in range(5):
            child = await node.supervisor.next_child()
            child.tell(StageGone("died again"))
        await node.until(
            lambda: node.stages.report().stages[0].reason == "died again\nnot restarted"
        )

    assert len(node.supervisor.children) == 6


async def test_a_stopped_or_superseded_stage_is_not_loaded_again(
    tmp_path: Path, plan: Plan, mock_clock: MockClock
) -> None:
    async with stage_node(tmp_path, plan) as node:
        await node.serve(10)
        node.supervisor.children[0].tell(StageGone("died"))
        await node.until(lambda: states(node) == [StageState.FAILED])
        await node.claim(11)
        assert states(node) == []
        mock_clock.jump(2)
        await node.rest()

        await node.serve(12)
        node.supervisor.children[1].tell(StageGone("died"))
        await node.until(lambda: states(node) == [StageState.FAILED])
        await node.ask(stop_of(plan.load(12, 1)))
        assert states(node) == []
        mock_clock.jump(2)
        await node.rest()

    assert len(node.supervisor.children) == 2


async def test_a_draining_node_does_not_load_a_dead_stage_again(
    tmp_path: Path, plan: Plan, mock_clock: MockClock
) -> None:
    mock_clock.rate = 20
    async with stage_node(tmp_path, plan) as node:
        await node.serve(10)
        node.stages.begin_drain()
        node.supervisor.children[0].tell(StageGone("died"))
        await node.until(
            lambda: any(
                "died\nnot restarted" in report.reason and "draining" in report.reason
                for report in node.stages.report().stages
            )
        )

    assert len(node.supervisor.children) == 1


async def test_an_expired_lease_keeps_a_dead_stage_down_until_it_is_renewed(
    tmp_path: Path, plan: Plan, mock_clock: MockClock
) -> None:
    async with stage_node(tmp_path, plan) as node:
        await node.serve(10)
        mock_clock.jump(5 * 60 * 60)
        mock_clock.rate = 20
        node.supervisor.children[0].tell(StageGone("died"))
        await node.until(
            lambda: (
                "lease of term 10 is expired" in node.stages.report().stages[0].reason
            )
        )
        ready = await node.serve(10)

    assert isinstance(ready, StageReady)
    assert len(node.supervisor.children) == 2


@pytest.mark.parametrize("step_hours", [1, -1, -5])
async def test_a_stepped_wall_clock_neither_ends_nor_stretches_a_lease(
    tmp_path: Path, plan: Plan, mock_clock: MockClock, step_hours: int
) -> None:
    """Boottime decides; the wall clock may only shorten a lease."""
    step_ms = 0

    def stepped() -> Instant:
        now = virtual_instant()
        return Instant(UnixMs(now.unix_ms + step_ms), now.boottime_ms)

    async with stage_node(tmp_path, plan, clock=stepped) as node:
        await node.claim(10)
        step_ms = step_hours * 3_600_000
        node.supervisor.serves_at_once = True
        ready = await node.ask(plan.load(10, 1))
        await node.ask(stop_of(plan.load(10, 1)))
        await node.claim(11)
        mock_clock.jump(4 * 3600 + 1)
        late = await node.ask(plan.load(11, 1))

    assert isinstance(ready, StageReady)
    assert "lease of term 11 is expired" in refusal(late)
