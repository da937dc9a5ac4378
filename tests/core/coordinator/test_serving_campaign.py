"""The proposer of a served run: loss, withdrawal, renewal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.coordinator.campaign_effects import (
    ChainProved,
    PeerChanged,
    PlanMade,
    PlanMissing,
    ProofFailed,
    Replied,
    Report,
    RequestFailed,
    RequestPlan,
    RoutePublished,
    RouteWithdrawn,
    Send,
    StageLost,
    Start,
    Step,
    Withdraw,
    WithdrawRoute,
)
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    ProbeClaim,
    StageStopped,
)
from skippyd.core.coordinator.phases import PROBE_TIMEOUT_MS, RENEW_AFTER_MS
from skippyd.core.coordinator.reasons import RejectReason
from skippyd.core.coordinator.retrying import RETRY_TICK_MS
from skippyd.core.coordinator.serving import (
    DRAIN_TIMEOUT_MS,
    RENEW_RETRY_MS,
    WITHDRAW_GRACE_MS,
)
from skippyd.core.coordinator.verdict import Rejected
from skippyd.ids import RunId, Term
from support.campaigns import (
    PLAN,
    A,
    B,
    C,
    Rig,
    good_reply,
    is_wanted_again,
    messages,
    plans,
    sent,
    stops,
)
from support.cluster import plan_over


if TYPE_CHECKING:
    from skippyd.core.coordinator.run import Run


# The served run.


def test_a_published_run_is_served_and_needs_no_second_start() -> None:
    rig = Rig()
    run = rig.serve()

    assert run.run_id == f"mesh-split-{run.term}-ca978112"
    assert rig.campaign.attempt is None
    assert rig.tell(Start()) == ()


def test_events_of_unknown_runs_change_nothing() -> None:
    rig = Rig()
    unknown = RunId("unknown")
    events = (
        ChainProved(unknown),
        ProofFailed(unknown, "late"),
        RoutePublished(unknown),
        RouteWithdrawn(unknown),
        StageLost(unknown, B, "late"),
        RequestFailed(B, ProbeClaim(rig.serve().claim(rig.now)), "late"),
    )

    assert [rig.tell(event) for event in events] == [()] * len(events)
    rig.tell(PeerChanged(C, is_available=False))
    rig.tell(PlanMade(plan_over("a", "b")))
    assert [rig.tell(event) for event in events] == [()] * len(events)
    assert rig.campaign.attempt is not None


def test_a_failing_attempt_is_told_by_proof_and_by_loss() -> None:
    for event in (
        lambda run_id: ProofFailed(run_id, "timeout"),
        lambda run_id: StageLost(run_id, B, "killed"),
    ):
        rig = Rig()
        rig.tell(Start())
        rig.tell(PlanMade(PLAN))
        assert rig.campaign.attempt is not None
        (message,) = messages(rig.tell(event(rig.campaign.attempt.run.run_id)))
        assert "mesh-split" in message
        assert rig.campaign.attempt is None


def test_a_lost_stage_is_replaced_without_its_node_at_a_newer_term() -> None:
    rig = Rig()
    old = rig.serve()

    effects = rig.tell(StageLost(old.run_id, C, "killed"))
    assert plans(effects) == [RequestPlan(excluded=(C,), is_replan=True)]
    rig.now = rig.now.later(10)
    new = rig.follow(plan_over("a", "b"))

    assert new.term > old.term
    assert new.run_id == f"mesh-split-{new.term}-ca978112-g2"
    assert new.shutdown_generation == 2
    assert rig.wait(WITHDRAW_GRACE_MS) == ()


def test_the_old_run_is_stopped_where_the_new_one_is_not() -> None:
    rig = Rig()
    old = rig.serve()
    rig.tell(StageLost(old.run_id, C, "killed"))
    rig.tell(PlanMade(plan_over("a", "b")))
    attempt = rig.campaign.attempt
    assert attempt is not None
    attempt.phase = attempt.phase.PUBLISHING

    effects = rig.tell(RoutePublished(attempt.run.run_id))

    assert sent(effects) == stops(C)
    assert effects[0] == Send(C, old.stop(old.plan.stages[2]))


def test_an_unreachable_node_is_a_lost_stage_when_it_serves() -> None:
    rig = Rig()
    rig.serve(plan_over("a", "b"))

    assert rig.tell(PeerChanged(C, is_available=False)) == ()
    (asked,) = plans(rig.tell(PeerChanged(B, is_available=False)))
    assert asked.excluded == (B, C)
    assert asked.is_replan


def test_the_route_goes_first_when_the_grace_ends_and_the_stages_after_it() -> None:
    rig = Rig()
    run = rig.serve()
    rig.tell(StageLost(run.run_id, C, "killed"))
    rig.tell(PlanMissing("too few nodes"))

    rig.wait(RETRY_TICK_MS)
    rig.tell(PlanMissing("too few nodes"))
    effects = rig.wait(WITHDRAW_GRACE_MS - RETRY_TICK_MS)
    assert WithdrawRoute(run.run_id) in effects
    assert sent(effects) == []
    assert sent(rig.tell(RouteWithdrawn(run.run_id))) == stops(A, B, C)
    assert rig.campaign.serving is None
    assert rig.tell(RouteWithdrawn(run.run_id)) == ()


def test_a_route_that_does_not_drain_does_not_hold_the_stages_up() -> None:
    rig = Rig()
    run = rig.serve()
    assert rig.tell(Withdraw()) == (
        Report(Step.WITHDRAW, f"{run.run_id}: asked to"),
        WithdrawRoute(run.run_id),
    )

    assert rig.tell(Withdraw()) == ()
    assert rig.tell(RouteWithdrawn(RunId("another"))) == ()
    assert rig.wait(DRAIN_TIMEOUT_MS - 1) == ()
    assert sent(rig.wait(1)) == stops(A, B, C)
    assert not is_wanted_again(rig)


def test_a_route_reported_gone_without_being_asked_changes_nothing() -> None:
    rig = Rig()
    run = rig.serve()

    assert rig.tell(RouteWithdrawn(run.run_id)) == ()
    assert rig.campaign.serving is not None


def test_a_withdrawn_attempt_is_undone() -> None:
    rig = Rig()
    rig.tell(Start())
    for effect in rig.tell(PlanMade(PLAN)):
        if isinstance(effect, Send):
            rig.tell(
                Replied(effect.node_id, effect.request, good_reply(effect.request))
            )

    assert [node for node, _ in sent(rig.tell(Withdraw()))] == [A, B, C]
    assert rig.campaign.attempt is None
    assert rig.tell(PlanMade(PLAN)) == ()


def test_a_start_while_the_old_route_drains_plans_anew() -> None:
    rig = Rig()
    rig.serve()
    rig.tell(Withdraw())

    assert len(plans(rig.tell(Start()))) == 1


def test_a_fenced_coordinator_withdraws_at_once_and_stands_by() -> None:
    rig = Rig()
    run = rig.serve()

    effects = rig.tell(StageLost(run.run_id, B, "fenced", is_fenced=True))

    assert WithdrawRoute(run.run_id) in effects
    assert plans(effects) == []
    assert len(plans(rig.wait(RETRY_TICK_MS))) == 1


def test_a_fenced_loss_while_a_replan_is_sought_withdraws() -> None:
    rig = Rig()
    run = rig.serve()
    rig.tell(StageLost(run.run_id, C, "killed"))

    effects = rig.tell(StageLost(run.run_id, B, "fenced", is_fenced=True))

    assert WithdrawRoute(run.run_id) in effects
    assert plans(rig.tell(PlanMade(plan_over("a", "b")))) == []
    assert rig.campaign.attempt is not None


def fenced_while_replacing(*, may_replace: bool, claims: bool) -> tuple[Rig, list[str]]:
    """A run is fenced while the one that is to replace it is on its way."""
    rig = Rig()
    run = rig.serve()
    rig.tell(StageLost(run.run_id, C, "killed"))
    plan = attrs.evolve(plan_over("a", "b"), may_replace=may_replace)
    for effect in rig.tell(PlanMade(plan)):
        if claims and isinstance(effect, Send):
            rig.follow_reply(effect)
    effects = rig.tell(StageLost(run.run_id, B, "fenced", is_fenced=True))
    return rig, messages(effects)


def test_a_fenced_coordinator_gives_up_an_attempt_that_has_claimed_nothing() -> None:
    rig, said = fenced_while_replacing(may_replace=False, claims=False)

    assert rig.campaign.attempt is None
    assert said[-1] == "standing by: fenced"
    assert len(plans(rig.wait(RETRY_TICK_MS))) == 1


def test_an_attempt_that_has_claimed_or_may_replace_is_left_to_the_fences() -> None:
    for may_replace, claims in ((True, False), (False, True)):
        rig, said = fenced_while_replacing(may_replace=may_replace, claims=claims)

        assert rig.campaign.attempt is not None
        assert "standing by" not in said[-1]


def test_the_grace_is_as_long_as_was_configured() -> None:
    rig = Rig()
    rig.campaign.withdraw_grace_ms = 5_000
    run = rig.serve()
    rig.tell(StageLost(run.run_id, C, "killed"))
    rig.tell(PlanMissing("too few nodes"))

    assert rig.wait(4_999) == ()
    assert WithdrawRoute(run.run_id) in rig.wait(1)


def test_a_stage_that_our_own_newer_claim_ended_is_no_failure() -> None:
    rig = Rig()
    run = rig.serve()
    rig.tell(StageLost(run.run_id, C, "killed"))
    for effect in rig.tell(PlanMade(plan_over("a", "b"))):
        if isinstance(effect, Send):
            rig.follow_reply(effect)

    assert rig.tell(StageLost(run.run_id, B, "the stage is gone")) == ()
    # Of a node that is gone itself it is news all the same.
    assert messages(rig.tell(PeerChanged(B, is_available=False)))[0].endswith(
        "lost b: the node is unreachable"
    )


def test_a_second_loss_during_a_replan_asks_for_no_second_plan() -> None:
    rig = Rig()
    run = rig.serve()
    rig.tell(StageLost(run.run_id, C, "killed"))

    assert plans(rig.tell(StageLost(run.run_id, B, "killed"))) == []
    rig.tell(PlanMade(plan_over("a", "b")))
    assert plans(rig.tell(PeerChanged(B, is_available=False))) == []


def test_time_passes_for_the_attempt_while_a_broken_run_keeps_its_grace() -> None:
    rig = Rig()
    run = rig.serve()
    rig.tell(StageLost(run.run_id, C, "killed"))
    rig.tell(PlanMade(plan_over("a", "b")))

    effects = rig.wait(PROBE_TIMEOUT_MS)

    assert "need 2: a: no answer in time; b: no answer in time" in messages(effects)[0]
    assert rig.campaign.serving is not None


# Renewals.


def renewal_of(rig: Rig, run: Run, reason: RejectReason, current: int) -> Replied:
    claim = run.claim(rig.now)
    rejected = Rejected(claim=claim, reason=reason, current_term=Term(current))
    answer = ClaimAnswer(verdict=rejected, instance_id="store")
    return Replied(B, ClaimCoordinator(claim), answer)


def test_the_lease_is_renewed_after_half_its_time() -> None:
    rig = Rig()
    run = rig.serve()

    effects = rig.wait(RENEW_AFTER_MS)

    request = ClaimCoordinator(run.claim(rig.now))
    assert effects == tuple(Send(node_id, request) for node_id in (A, B, C))
    assert rig.tell(Replied(A, request, good_reply(request))) == ()
    assert (
        rig.tell(Replied(A, request, StageStopped(run.stop(PLAN.stages[0]).stage)))
        == ()
    )
    assert rig.tell(RequestFailed(B, request, "unreachable")) == ()
    assert len(sent(rig.wait(RENEW_RETRY_MS))) == 3


def test_a_renewal_refused_by_a_newer_term_means_fenced() -> None:
    rig = Rig()
    run = rig.serve()
    rig.wait(RENEW_AFTER_MS)

    newer = renewal_of(rig, run, RejectReason.STALE_TERM, run.term + 1)

    assert WithdrawRoute(run.run_id) in rig.tell(newer)


def test_a_renewal_refused_for_another_reason_is_tried_again() -> None:
    rig = Rig()
    run = rig.serve()
    rig.wait(RENEW_AFTER_MS)

    refused = renewal_of(rig, run, RejectReason.QUARANTINED, 0)

    assert rig.tell(refused) == ()
    assert len(sent(rig.wait(RENEW_RETRY_MS))) == 3


# Stops that were missed.


def test_a_stop_that_did_not_arrive_is_sent_when_the_node_is_back() -> None:
    rig = Rig()
    run = rig.serve()
    rig.tell(Withdraw())
    rig.tell(RouteWithdrawn(run.run_id))
    stop = run.stop(run.plan.stages[2])
    rig.tell(RequestFailed(C, stop, "unreachable"))

    assert rig.tell(PeerChanged(C, is_available=True)) == (Send(C, stop),)
    assert rig.tell(PeerChanged(C, is_available=True)) == ()
