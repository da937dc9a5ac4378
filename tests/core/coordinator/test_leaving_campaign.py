"""The proposer and nodes that leave: drained by their operators, or told to stop."""

from __future__ import annotations

from skippyd.core.coordinator.campaign_effects import (
    PeerChanged,
    PeerLeaving,
    PlanMade,
    PlanMissing,
    RequestPlan,
    RoutePublished,
    StageLost,
    Start,
)
from skippyd.core.coordinator.retrying import RETRY_TICK_MS
from skippyd.core.coordinator.serving import WITHDRAW_GRACE_MS
from support.campaigns import PLAN, B, C, Rig, messages, plans
from support.cluster import plan_over


def test_a_draining_node_is_planned_around_while_its_run_serves_on() -> None:
    rig = Rig()
    old = rig.serve()

    (asked,) = plans(rig.tell(PeerLeaving(C, is_leaving=True)))
    assert asked == RequestPlan(excluded=(C,), is_replan=True)
    rig.now = rig.now.later(10)
    new = rig.follow(plan_over("a", "b"))

    assert new.term > old.term
    assert rig.campaign.serving is not None
    assert rig.campaign.serving.run == new
    assert rig.campaign.serving.is_whole
    assert rig.wait(2 * WITHDRAW_GRACE_MS) == ()


def test_a_run_goes_on_when_nothing_can_stand_in_for_a_draining_node() -> None:
    rig = Rig()
    rig.serve()
    rig.tell(PeerLeaving(C, is_leaving=True))

    assert messages(rig.tell(PlanMissing("too few nodes")))
    assert len(plans(rig.wait(RETRY_TICK_MS))) == 1
    rig.tell(PlanMissing("too few nodes"))
    rig.tell(PeerLeaving(C, is_leaving=False))
    assert plans(rig.wait(RETRY_TICK_MS)) == []
    assert rig.campaign.serving is not None
    assert rig.campaign.serving.is_whole


def test_a_node_that_leaves_without_a_stage_here_is_only_left_out() -> None:
    rig = Rig()
    rig.serve(plan_over("a", "b"))

    assert plans(rig.tell(PeerLeaving(C, is_leaving=True))) == []
    (asked,) = plans(rig.tell(PeerChanged(B, is_available=False)))
    assert asked.excluded == (B, C)


def test_a_plan_that_counts_on_a_leaving_node_is_not_tried() -> None:
    rig = Rig()
    rig.tell(Start())
    rig.tell(PeerLeaving(C, is_leaving=True))

    assert messages(rig.tell(PlanMade(PLAN))) == [
        "standing by: the plan counts on leaving nodes: c"
    ]


def test_a_node_that_leaves_while_its_run_comes_up_is_moved_away_from_then() -> None:
    rig = Rig()
    rig.tell(Start())
    rig.tell(PlanMade(PLAN))
    attempt = rig.campaign.attempt
    assert attempt is not None
    rig.tell(PeerLeaving(C, is_leaving=True))
    attempt.phase = attempt.phase.PUBLISHING

    (asked,) = plans(rig.tell(RoutePublished(attempt.run.run_id)))
    assert asked == RequestPlan(excluded=(C,), is_replan=True)


def test_a_node_whose_operator_ended_the_stage_is_left_out_until_it_is_deployed() -> (
    None
):
    rig = Rig()
    run = rig.serve()

    (asked,) = plans(rig.tell(StageLost(run.run_id, C, "stop", is_stopped=True)))
    assert asked.excluded == (C,)
    for _ in range(2):
        rig.tell(PlanMissing("too few nodes"))
        (asked,) = plans(rig.wait(RETRY_TICK_MS))
        assert asked.excluded == (C,)
    rig.tell(PlanMissing("too few nodes"))
    (asked,) = plans(rig.tell(Start()))
    assert asked.excluded == ()


def test_an_attempt_whose_stage_an_operator_ended_fails_and_does_without_it() -> None:
    rig = Rig()
    rig.tell(Start())
    rig.tell(PlanMade(PLAN))
    assert rig.campaign.attempt is not None
    run_id = rig.campaign.attempt.run.run_id

    rig.tell(StageLost("another", C, "stop", is_stopped=False))  # type: ignore[arg-type]
    assert rig.campaign.attempt is not None
    rig.tell(StageLost(run_id, C, "stop", is_stopped=True))
    (asked,) = plans(rig.wait(RETRY_TICK_MS))
    assert asked.excluded == (C,)


def test_a_deployment_that_serves_already_is_left_alone_when_deployed_again() -> None:
    rig = Rig()
    rig.serve()

    assert rig.tell(Start()) == ()
