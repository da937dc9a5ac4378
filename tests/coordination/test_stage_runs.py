"""Runs of a node directly: what a process is told, and which failures are kept."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from skippyd.coordination import stage_runs
from skippyd.coordination.inventory import Inventory
from skippyd.coordination.model_digests import ModelDigests
from skippyd.coordination.stage_parts import StageParts
from skippyd.coordination.stage_processes import StageGone, StageHealth, StageLoading
from skippyd.coordination.stage_runs import StageRuns
from skippyd.core.coordinator.control_effects import StageBecameReady, StageEnded
from skippyd.core.coordinator.messages import Origin, StageState
from skippyd.stage.activity import LaneActivity, StageActivity
from skippyd.stage.span_outbox import SpanBatch
from support.stage_nodes import (
    SOME_BUILD,
    FakeSupervisor,
    Plan,
    small_plan,
    virtual_instant,
)


if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

    from skippyd.coordination.stage_run import StageRun
    from skippyd.core.coordinator.messages import Reply


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A small model in two stages."""
    plan = small_plan(tmp_path_factory.mktemp("models"))
    return attrs.evolve(plan, ports=(0, 19_001))


@attrs.define(eq=False)
class Offered:
    """What runs offer to the rules."""

    events: list[StageBecameReady | StageEnded] = attrs.Factory(list)
    changes: int = 0

    def change(self) -> None:
        self.changes += 1

    async def never(self, _run: StageRun) -> Reply:
        raise AssertionError("nothing is to be loaded again")


@contextlib.asynccontextmanager
async def runs_of(
    plan: Plan, *, one_at_a_time: bool = False
) -> AsyncIterator[tuple[StageRuns, FakeSupervisor, Offered]]:
    supervisor, offered = FakeSupervisor(), Offered()
    inventory = Inventory((plan.path,), ModelDigests(None))
    runs = StageRuns(
        supervisor=supervisor,
        parts=StageParts(inventory, lambda: SOME_BUILD),
        clock=virtual_instant,
        offer=offered.events.append,
        reload=offered.never,
        on_change=offered.change,
        one_at_a_time=one_at_a_time,
    )
    async with trio.open_nursery() as runs.nursery:
        yield runs, supervisor, offered
        runs.nursery.cancel_scope.cancel()


async def test_stages_of_one_run_on_one_machine_share_its_cores(plan: Plan) -> None:
    async with runs_of(plan) as (runs, supervisor, _):
        runs.start(plan.load(10, 1), plan.settings(), Origin.NETWORK)
        together = await supervisor.next_child()
        stages = tuple(
            attrs.evolve(stage, host=f"127.0.0.{index + 1}")
            for index, stage in enumerate(plan.settings().stages)
        )
        settings = attrs.evolve(plan.settings(), stages=stages)
        runs.start(plan.load(11, 1), settings, Origin.NETWORK)
        alone = await supervisor.next_child()

    assert b'"n_threads": null' not in together.launch.documents["--config"]
    assert b'"n_threads": null' in alone.launch.documents["--config"]


async def test_safe_mode_answers_one_request_at_a_time_with_the_same_lanes(
    plan: Plan,
) -> None:
    async with runs_of(plan, one_at_a_time=True) as (runs, supervisor, _):
        runs.start(plan.load(10, 0), plan.settings(), Origin.NETWORK)
        child = await supervisor.next_child()

    assert child.launch.arguments == (
        "--openai-bind-addr",
        "127.0.0.1:0",
        "--openai-generation-concurrency",
        "1",
    )
    assert b'"lane_count": 2' in child.launch.documents["--config"]


async def test_news_of_loading_is_passed_on_in_steps(plan: Plan) -> None:
    async with runs_of(plan) as (runs, supervisor, offered):
        runs.start(plan.load(10, 1), plan.settings(), Origin.NETWORK)
        child = await supervisor.next_child()
        await wait_all_tasks_blocked()
        before = offered.changes
        for thousandth in range(1001):
            child.tell(StageLoading(thousandth / 1000))
        (report,) = runs.reports()

    assert 15 < offered.changes - before <= 21
    assert report.loaded_bytes == report.total_bytes
    assert report.reason.startswith("loading layers: 3 of 3, ")


async def test_health_of_a_run_that_ends_is_no_news(plan: Plan) -> None:
    async with runs_of(plan) as (runs, supervisor, _):
        runs.start(plan.load(10, 0), plan.settings(), Origin.NETWORK)
        child = await supervisor.next_child()
        child.is_obedient = False
        child.tell(StageHealth("ok"))
        runs.shut_down(plan.load(10, 0), "asked to stop", is_fenced=False)
        runs.shut_down(plan.load(10, 0), "again", is_fenced=True)
        child.tell(StageHealth("degraded"))
        (report,) = runs.reports()

    assert report.health == "ok"
    assert (report.status.state, report.reason) == (
        StageState.STOPPING,
        "asked to stop",
    )
    assert child.orders == ["terminate"]


async def test_a_run_that_is_ended_before_its_process_starts_starts_none(
    plan: Plan,
) -> None:
    async with runs_of(plan) as (runs, supervisor, offered):
        async with runs.parts.inventory._reading:  # its model is still looked for
            runs.start(plan.load(10, 1), plan.settings(), Origin.NETWORK)
            runs.shut_down(plan.load(10, 1), "superseded", is_fenced=True)
        while not offered.events:
            await wait_all_tasks_blocked()

    assert offered.events == [StageEnded(plan.load(10, 1), "superseded")]
    assert supervisor.children == []


async def test_a_process_that_never_gets_ready_is_ended(
    plan: Plan, mock_clock: MockClock
) -> None:
    async with runs_of(plan) as (runs, supervisor, offered):
        runs.start(plan.load(10, 1), plan.settings(), Origin.NETWORK)
        child = await supervisor.next_child()
        await wait_all_tasks_blocked()
        mock_clock.jump(899)
        await wait_all_tasks_blocked()
        assert child.orders == []
        mock_clock.jump(2)
        await wait_all_tasks_blocked()

    assert child.orders == ["kill"]
    assert offered.events == [
        StageEnded(plan.load(10, 1), "not ready within 900 s: it was killed")
    ]


async def test_what_a_process_counts_is_kept(plan: Plan) -> None:
    async with runs_of(plan) as (runs, supervisor, _):
        runs.start(plan.load(10, 1), plan.settings(), Origin.NETWORK)
        child = await supervisor.next_child()
        child.tell(StageHealth(None, {"lanes": 3}))
        (run,) = runs.runs()

    assert run.counters == {"lanes": 3}


async def test_what_lanes_are_at_is_kept_and_spans_are_passed_on(plan: Plan) -> None:
    batches: list[SpanBatch] = []
    activity = StageActivity(lanes=(LaneActivity(lane_id=0, state="idle"),))
    async with runs_of(plan) as (runs, supervisor, _):
        runs.on_spans = batches.append
        runs.start(plan.load(10, 1), plan.settings(), Origin.NETWORK)
        child = await supervisor.next_child()
        child.tell(activity)
        child.tell(SpanBatch(dropped=2))
        (run,) = runs.runs()

    assert run.activity == activity
    assert batches == [SpanBatch(dropped=2)]


async def test_a_run_that_never_served_stays_down_and_is_shown(plan: Plan) -> None:
    async with runs_of(plan) as (runs, supervisor, offered):
        runs.start(plan.load(10, 1), plan.settings(), Origin.NETWORK)
        child = await supervisor.next_child()
        child.tell(StageGone("exited with 1"))
        runs.end(plan.load(10, 1), "exited with 1")
        (report,) = runs.reports()
        runs.start(plan.load(11, 1), plan.settings(), Origin.NETWORK)
        (newer,) = runs.reports()

    assert offered.events == [StageEnded(plan.load(10, 1), "exited with 1")]
    assert (report.status.state, report.reason) == (StageState.FAILED, "exited with 1")
    assert newer.status.coordinator_term == 11


async def test_only_so_many_failures_are_kept(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_runs, "MAX_FAILED", 3)
    monkeypatch.setattr(StageRuns, "_forget_model", lambda _runs, _load: None)
    async with runs_of(plan) as (runs, supervisor, _):
        supervisor.failure = "no memory"
        for term in range(10, 20):
            runs.start(plan.load(term, 1), plan.settings(), Origin.NETWORK)
            runs.end(plan.load(term, 1), "no memory")
        terms = {report.status.coordinator_term for report in runs.reports()}

    assert len(terms) == 3
