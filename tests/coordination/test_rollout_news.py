"""Everything that looking around tells one campaign, from one place."""

from __future__ import annotations

import attrs

from skippyd.coordination.rollout_news import RolloutNews
from skippyd.core.coordinator.campaign_effects import PeerLeaving, StageLost
from skippyd.core.coordinator.messages import StageState
from support.async_cluster import wish_of_model
from support.campaigns import A, B, C, Rig
from support.node_reports import report_of, stage_report


def test_losses_and_nodes_that_leave_are_told_once() -> None:
    rig = Rig()
    run = rig.serve()
    news = RolloutNews(A)
    dead = stage_report(run.run_id, state=StageState.FAILED, reason="signal 9")
    reports = {
        B: report_of("b", stages=(dead,)),
        C: attrs.evolve(report_of("c"), is_draining=True),
    }
    lost, leaving = news.events(rig.campaign, None, reports, 0)
    assert isinstance(lost, StageLost)
    assert (lost.run_id, lost.node_id) == (run.run_id, B)
    assert leaving == PeerLeaving(C, is_leaving=True)
    assert list(news.events(rig.campaign, None, reports, 0)) == []


def test_stages_of_runs_that_are_over_are_strays() -> None:
    rig = Rig()
    run = rig.serve()
    news = RolloutNews(A)
    kept = stage_report(run.run_id, coordinator="a")
    stray = stage_report("older", coordinator="a")
    reports = {B: report_of("b", stages=(kept, stray))}
    ((node_id, stop),) = news.strays(wish_of_model("a"), rig.campaign, reports, 0)
    assert (node_id, stop.stage.run_id) == (B, "older")


def test_loads_are_told_of_an_attempt_only() -> None:
    rig = Rig()
    run = rig.serve()
    loading = stage_report(run.run_id, state=StageState.STARTING, loaded=(5, 10))
    reports = {B: report_of("b", stages=(loading,))}
    assert list(RolloutNews(A).loads(rig.campaign, reports)) == []
