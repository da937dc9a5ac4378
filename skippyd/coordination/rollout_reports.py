"""What the reports of nodes mean for a coordinator: nodes come and go, stages end.

A node's report may be older than its last answer, so a stage that is not in it counts
as lost only after a report has shown it ready, or some time after its node said so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.coordinator.campaign_effects import (
    PeerChanged,
    PeerLeaving,
    StageLost,
)
from skippyd.core.coordinator.instant import MS_PER_S
from skippyd.core.coordinator.messages import StageState


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skippyd.coordination.ports import NodeReport, Route, StageReport
    from skippyd.core.coordinator.run import Run
    from skippyd.ids import NodeId, RunId

LOST_STATES = frozenset(
    {StageState.FAILED, StageState.STOPPING, StageState.STOPPED},
)
"""States in which a participant is unavailable (skippy-facts 3.6)."""

REPORT_AGE_MS = 10 * MS_PER_S
"""No report of an available node is older: then it counts as silent."""


@attrs.define(eq=False)
class ReportReader:
    """Turns the newest reports into events, each piece of news once.

    Args:
        own_id: This node; it is always available to itself.
    """

    own_id: NodeId
    _available: dict[NodeId, bool] = attrs.field(factory=dict, init=False)
    _seen_ready: set[tuple[RunId, NodeId]] = attrs.field(factory=set, init=False)
    _ready_ms: dict[tuple[RunId, NodeId], int] = attrs.field(factory=dict, init=False)
    _told_lost: set[tuple[RunId, NodeId]] = attrs.field(factory=set, init=False)
    _leaving: set[NodeId] = attrs.field(factory=set, init=False)

    def peer_events(
        self, node_id: NodeId, *, is_available: bool
    ) -> tuple[PeerChanged, ...]:
        """Say that a node came or went, when that is news."""
        if node_id == self.own_id:
            return ()
        if self._available.get(node_id) is is_available:
            return ()
        is_first = node_id not in self._available
        self._available[node_id] = is_available
        # A node that was there from the start is no news: nothing has waited for it.
        return (
            () if is_first and is_available else (PeerChanged(node_id, is_available),)
        )

    def note_ready(self, run_id: RunId, node_id: NodeId, now_ms: int) -> None:
        """A node has answered that its stage is ready."""
        self._ready_ms[run_id, node_id] = now_ms

    def lost_stages(
        self, run: Run, reports: Mapping[NodeId, NodeReport], now_ms: int
    ) -> Iterator[StageLost]:
        """Find the stages of a run that ended, as far as nodes report."""
        for place, ready_ms in self._ready_ms.items():
            if now_ms - ready_ms >= REPORT_AGE_MS:
                self._seen_ready.add(place)
        for stage in run.plan.stages:
            report = reports.get(stage.node_id)
            place = (run.run_id, stage.node_id)
            if report is None or place in self._told_lost:
                continue
            lost = self._look(run, stage.node_id, report)
            if lost is not None:
                self._told_lost.add(place)
                yield lost

    def leaving_nodes(
        self, reports: Mapping[NodeId, NodeReport]
    ) -> Iterator[PeerLeaving]:
        """Say which nodes began to drain, and which take stages again.

        This node is left out: it hands its runs over when it drains.
        """
        for node_id, report in reports.items():
            is_known = node_id in self._leaving
            if node_id == self.own_id or report.is_draining is is_known:
                continue
            if report.is_draining:
                self._leaving.add(node_id)
            else:
                self._leaving.discard(node_id)
            yield PeerLeaving(node_id, report.is_draining)

    def forget_other_runs(self, kept: frozenset[RunId]) -> None:
        """Drop what was seen of runs that are over."""
        self._seen_ready = {place for place in self._seen_ready if place[0] in kept}
        self._ready_ms = {k: v for k, v in self._ready_ms.items() if k[0] in kept}
        self._told_lost = {place for place in self._told_lost if place[0] in kept}

    def _look(self, run: Run, node_id: NodeId, report: NodeReport) -> StageLost | None:
        stage = stage_of_run(report, run.run_id)
        if stage is not None and stage.status.state not in LOST_STATES:
            if stage.status.state is StageState.READY:
                self._seen_ready.add((run.run_id, node_id))
            return None
        if stage is None and (run.run_id, node_id) not in self._seen_ready:
            return None
        newer = _newer_run(report, run)
        if newer is not None:
            reason = f"fenced by {newer.status.stage.run_id}"
            return StageLost(run.run_id, node_id, reason, is_fenced=True)
        if run.run_id in report.stopped_runs:
            reason = "its operator stopped the stage"
            return StageLost(run.run_id, node_id, reason, is_stopped=True)
        reason = "the stage is gone" if stage is None else _reason(stage)
        return StageLost(run.run_id, node_id, reason)


def stage_of_run(report: NodeReport, run_id: RunId) -> StageReport | None:
    """Return a node's stage of a run, if it reports one."""
    return next(
        (s for s in report.stages if s.status.stage.run_id == run_id),
        None,
    )


def is_coordinated(reports: Mapping[NodeId, NodeReport], route: Route) -> bool:
    """Say whether a route's coordinator is there and has not left its run.

    A node that is draining and has ended its stage leaves the run to the next one.
    """
    report = reports.get(route.coordinator_id)
    if report is None:
        return False
    return not report.is_draining or stage_of_run(report, route.run_id) is not None


def _newer_run(report: NodeReport, run: Run) -> StageReport | None:
    """Return a stage of the same model that another coordinator's newer run has."""
    for stage in report.stages:
        status = stage.status
        is_newer = status.key == run.plan.key and status.coordinator_term > run.term
        if is_newer and status.coordinator_id != run.coordinator_id:
            return stage
    return None


def _reason(stage: StageReport) -> str:
    said = f": {stage.reason}" if stage.reason else ""
    return f"stage {stage.status.stage_index} is {stage.status.state.value}{said}"
