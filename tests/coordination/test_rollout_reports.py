"""From reports of nodes to events of a campaign, each piece of news once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.coordination.rollout_reports import (
    REPORT_AGE_MS,
    ReportReader,
    stage_of_run,
)
from skippyd.core.coordinator.campaign_effects import (
    PeerChanged,
    PeerLeaving,
    StageLost,
)
from skippyd.core.coordinator.messages import StageState
from skippyd.core.coordinator.run import Run
from skippyd.ids import CoordinatorId, NodeId, RunId, Term
from support.cluster import plan_over
from support.node_reports import report_of, stage_report


if TYPE_CHECKING:
    from skippyd.coordination.ports import NodeReport, StageReport


A, B = NodeId("a"), NodeId("b")
RUN = Run(
    plan=plan_over("a", "b"),
    coordinator_id=CoordinatorId("a"),
    term=Term(10),
    shutdown_generation=1,
)


def reports(*stages: StageReport) -> dict[NodeId, NodeReport]:
    return {B: report_of("b", stages=stages)}


def looked(
    reader: ReportReader, *stages: StageReport, at_ms: int = 0
) -> list[StageLost]:
    return list(reader.lost_stages(RUN, reports(*stages), at_ms))


def test_a_peer_that_comes_or_goes_is_said_once() -> None:
    reader = ReportReader(A)
    assert reader.peer_events(B, is_available=True) == ()
    assert reader.peer_events(B, is_available=False) == (PeerChanged(B, False),)
    assert reader.peer_events(B, is_available=False) == ()
    assert reader.peer_events(B, is_available=True) == (PeerChanged(B, True),)
    assert reader.peer_events(A, is_available=False) == ()


def test_a_peer_that_is_away_from_the_start_is_said() -> None:
    reader = ReportReader(A)
    assert reader.peer_events(B, is_available=False) == (PeerChanged(B, False),)


@pytest.mark.parametrize(
    "state", [StageState.FAILED, StageState.STOPPING, StageState.STOPPED]
)
def test_a_stage_in_a_bad_state_is_lost_with_its_reason(state: StageState) -> None:
    reader = ReportReader(A)
    stage = stage_report(RUN.run_id, state=state, reason="signal 9")
    (lost,) = looked(reader, stage)
    assert (lost.node_id, lost.is_fenced) == (B, False)
    assert lost.reason == f"stage 1 is {state.value}: signal 9"
    assert looked(reader, stage) == []


def test_a_stage_that_was_never_seen_is_not_missed() -> None:
    reader = ReportReader(A)
    assert looked(reader) == []
    assert looked(reader, stage_report(RUN.run_id, state=StageState.STARTING)) == []
    assert looked(reader) == []


def test_a_stage_that_was_ready_and_is_gone_is_lost() -> None:
    reader = ReportReader(A)
    assert looked(reader, stage_report(RUN.run_id)) == []
    (lost,) = looked(reader)
    assert lost.reason == "the stage is gone"


def test_a_stage_that_said_it_is_ready_is_missed_when_no_report_can_be_older() -> None:
    reader = ReportReader(A)
    reader.note_ready(RUN.run_id, B, 0)
    assert looked(reader, at_ms=REPORT_AGE_MS - 1) == []
    assert len(looked(reader, at_ms=REPORT_AGE_MS)) == 1


def test_a_stage_that_a_newer_coordinator_ended_is_fenced() -> None:
    reader = ReportReader(A)
    looked(reader, stage_report(RUN.run_id))
    newer = stage_report("newer", coordinator="b", term=11)
    (lost,) = looked(reader, newer)
    assert lost.is_fenced
    assert "newer" in lost.reason


def test_an_own_newer_run_is_no_fence() -> None:
    reader = ReportReader(A)
    looked(reader, stage_report(RUN.run_id))
    (lost,) = looked(reader, stage_report("newer", coordinator="a", term=11))
    assert not lost.is_fenced


def test_runs_that_are_over_are_forgotten() -> None:
    reader = ReportReader(A)
    looked(reader, stage_report(RUN.run_id))
    reader.forget_other_runs(frozenset())
    assert looked(reader) == []


def test_a_node_that_says_nothing_is_judged_by_its_connection() -> None:
    reader = ReportReader(A)
    looked(reader, stage_report(RUN.run_id))
    assert list(reader.lost_stages(RUN, {}, 0)) == []


def test_a_stage_is_found_by_its_run() -> None:
    report = report_of("b", stages=(stage_report("one"), stage_report("two")))
    found = stage_of_run(report, RunId("two"))
    assert found is not None
    assert found.status.stage.run_id == "two"
    assert stage_of_run(report, RunId("three")) is None


def test_a_node_that_drains_is_said_once_and_once_when_it_is_back() -> None:
    reader = ReportReader(A)
    drains = attrs.evolve(report_of("b"), is_draining=True)
    own = {A: attrs.evolve(report_of("a"), is_draining=True)}
    assert list(reader.leaving_nodes(own)) == []
    for report, said in (
        (report_of("b"), []),
        (drains, [PeerLeaving(B, is_leaving=True)]),
        (drains, []),
        (report_of("b"), [PeerLeaving(B, is_leaving=False)]),
        (report_of("b"), []),
    ):
        assert list(reader.leaving_nodes({B: report})) == said
    assert list(reader.leaving_nodes({})) == []


def test_a_stage_that_its_operator_stopped_is_told_as_such() -> None:
    reader = ReportReader(A)
    assert looked(reader, stage_report(RUN.run_id)) == []
    report = attrs.evolve(report_of("b"), stopped_runs=(RunId("old"), RUN.run_id))
    (lost,) = reader.lost_stages(RUN, {B: report}, 0)
    assert lost.is_stopped
    assert lost.reason == "its operator stopped the stage"
