"""Stages of own runs that nobody stopped: found in reports, asked to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.coordination.rollout_strays import STOP_AGAIN_MS, StrayFinder
from skippyd.core.coordinator.messages import StageState
from skippyd.ids import NodeId, RunId
from support.async_cluster import MODEL, running_cluster, wish_of_model
from support.node_reports import report_of, stage_report
from support.rollout_waits import deployed


if TYPE_CHECKING:
    from trio.testing import MockClock

    from skippyd.coordination.ports import NodeReport, StageReport

A, B = NodeId("a"), NodeId("b")
WISH = wish_of_model("a")


def reports(*stages: StageReport) -> dict[NodeId, NodeReport]:
    return {B: report_of("b", stages=stages)}


def found(*stages: StageReport, kept: tuple[str, ...] = ()) -> list[str]:
    runs = frozenset(RunId(run) for run in kept)
    stops = StrayFinder(A).stops(WISH, runs, reports(*stages), 0)
    return [stop.stage.run_id for _, stop in stops]


def test_own_runs_that_are_not_kept_are_stopped() -> None:
    old, new = (stage_report(run, coordinator="a") for run in ("old", "new"))
    assert found(old, new, kept=("new",)) == ["old"]


def test_a_stop_names_the_very_stage() -> None:
    stage = stage_report("old", coordinator="a", term=7)
    ((node_id, stop),) = StrayFinder(A).stops(WISH, frozenset(), reports(stage), 0)
    assert node_id == B
    assert (stop.stage, stop.coordinator_term) == (stage.status.stage, 7)


def test_runs_of_others_are_left_alone() -> None:
    assert found(stage_report("theirs", coordinator="b")) == []


@pytest.mark.parametrize("state", [StageState.STOPPING, StageState.FAILED])
def test_what_ends_anyway_is_left_alone(state: StageState) -> None:
    assert found(stage_report("old", coordinator="a", state=state)) == []


def test_a_stop_is_not_repeated_at_once() -> None:
    finder, known = StrayFinder(A), reports(stage_report("old", coordinator="a"))
    asked = [
        len(list(finder.stops(WISH, frozenset(), known, at_ms)))
        for at_ms in (0, 1, STOP_AGAIN_MS, STOP_AGAIN_MS + 1)
    ]
    assert asked == [1, 0, 1, 0]


async def test_a_coordinator_that_crashed_clears_up_behind_itself(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c") as cluster:
        old = await deployed(cluster)
        cluster.isolate("c")
        cluster.nodes[A].crash()
        await cluster.start("a")
        await trio.sleep(10)
        assert cluster.nodes[NodeId("c")].stages.serves(old.run_id)
        cluster.heal()
        await trio.sleep(60)
        route = cluster.nodes[A].routes.route_of(MODEL)
        assert route is not None
        runs = {
            process.load.stage.run_id
            for node in cluster.nodes.values()
            for process in node.stages.processes
        }
        assert runs == {route.run_id}
