"""The canary, the route and the progress of loads, from what reports say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.rollout_proving import (
    ProgressTeller,
    route_of_run,
    until_drained,
    until_healthy,
)
from skippyd.core.coordinator.instant import MAX_LEASE_MS
from skippyd.core.coordinator.messages import StageState
from skippyd.core.coordinator.run import Run
from skippyd.ids import CoordinatorId, NodeId, Term
from support.async_cluster import wish_of_model
from support.node_reports import report_of, stage_report
from support.planning_nodes import FixedNodes
from support.rollout_plans import PLANNED


if TYPE_CHECKING:
    from trio.testing import MockClock

    from skippyd.coordination.ports import NodeReport, StageReport

A, B = NodeId("a"), NodeId("b")
RUN = Run(
    plan=PLANNED.campaign_plan,
    coordinator_id=CoordinatorId("a"),
    term=Term(5),
    shutdown_generation=1,
)


def reporting(*stages: StageReport) -> FixedNodes:
    return FixedNodes(A, {A: report_of("a", stages=stages)}, {})


def first_stage(health: str | None, url: str | None = None) -> StageReport:
    stage = stage_report(RUN.run_id)
    return attrs.evolve(stage, health=health, openai_base_url=url)


async def test_the_chain_is_proved_when_its_first_stage_is_healthy(
    autojump_clock: MockClock,
) -> None:
    nodes, told = reporting(), list[str]()

    async def get_well() -> None:
        for health in (None, "loading", "degraded: no token", "degraded: no token"):
            await trio.sleep(1)
            nodes.known[A] = report_of("a", stages=(first_stage(health),))
        await trio.sleep(1)
        nodes.known[A] = report_of("a", stages=(first_stage("ok"),))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(get_well)
        assert await until_healthy(RUN, nodes, is_over=lambda: False, tell=told.append)
    assert told == ["loading", "degraded: no token"]


async def test_nobody_waits_for_a_run_that_is_over(autojump_clock: MockClock) -> None:
    over = iter([False, False, True])
    assert not await until_healthy(
        RUN, reporting(), is_over=lambda: next(over), tell=lambda _health: None
    )


async def test_a_drain_ends_with_the_last_request(autojump_clock: MockClock) -> None:
    active = [2]

    async def finish() -> None:
        await trio.sleep(5)
        active[0] = 0

    async with trio.open_nursery() as nursery:
        nursery.start_soon(finish)
        await until_drained(lambda: active[0])
    assert 5 <= trio.current_time() <= 6


def test_a_route_says_all_that_a_candidate_needs() -> None:
    nodes = reporting(first_stage("ok", "http://127.0.0.1:1/v1"))
    wish = wish_of_model("a", node_ids=(A, B))
    route = route_of_run(RUN, PLANNED, wish, nodes, lease_from_unix_ms=7)
    assert route is not None
    assert (route.run_id, route.term, route.coordinator_id) == (RUN.run_id, 5, A)
    assert (route.node_ids, route.wanted_nodes) == ((A, B), (A, B))
    assert (route.ctx_size, route.lane_count) == (512, 2)
    assert route.lease_until_unix_ms == 7 + MAX_LEASE_MS
    assert route.model_sha256 == RUN.plan.key.manifest_sha256


def test_there_is_no_route_without_an_address() -> None:
    wish = wish_of_model("a")
    for nodes in (reporting(), reporting(first_stage("ok"))):
        assert route_of_run(RUN, PLANNED, wish, nodes, lease_from_unix_ms=7) is None


def test_progress_is_told_in_twentieths() -> None:
    teller, told = ProgressTeller(), list[tuple[int, int]]()

    def said(done: int, state: StageState = StageState.STARTING) -> None:
        stage = stage_report(RUN.run_id, state=state, loaded=(done, 1_000))
        reports: dict[NodeId, NodeReport] = {B: report_of("b", stages=(stage,))}
        told.extend((n.done, n.total) for n in teller.news(RUN, reports))

    for done in (0, 10, 60, 70, 99, 100, 500, 490):
        said(done)
    said(1_000, StageState.READY)
    assert told == [(60, 1_000), (100, 1_000), (500, 1_000)]


def test_progress_is_worded() -> None:
    stage = stage_report(RUN.run_id, state=StageState.STARTING, loaded=(512, 1_024))
    (news,) = ProgressTeller().news(RUN, {B: report_of("b", stages=(stage,))})
    assert news.message == "stage-1: 512 B of 1.00 KiB"
