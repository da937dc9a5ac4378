"""The proposer: plans, back-off, standby, loss, withdrawal, renewal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.coordinator.campaign import (
    BACK_OFF_FIRST_MS,
    BACK_OFF_MAX_MS,
    DEBOUNCE_MS,
    RETRY_TICK_MS,
    Campaign,
)
from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    ChainProved,
    PeerChanged,
    PlanMade,
    PlanMissing,
    ProofFailed,
    PublishRoute,
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
    TimePassed,
    Withdraw,
    WithdrawRoute,
)
from skippyd.core.coordinator.instant import NS_PER_MS, Instant
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    LoadStage,
    PreparationState,
    PreparationStatus,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    Reply,
    Request,
    StageReady,
    StageStopped,
    StopStage,
)
from skippyd.core.coordinator.phases import RENEW_AFTER_MS
from skippyd.core.coordinator.reasons import RejectReason
from skippyd.core.coordinator.serving import (
    DRAIN_TIMEOUT_MS,
    RENEW_RETRY_MS,
    WITHDRAW_GRACE_MS,
)
from skippyd.core.coordinator.verdict import Accepted, FencedRun, Rejected
from skippyd.ids import CoordinatorId, NodeId, RunId, Term, UnixMs
from support.claims import changed, ready_status
from support.cluster import plan_over


if TYPE_CHECKING:
    from skippyd.core.coordinator.run import CampaignPlan, Run


A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
PLAN = plan_over("a", "b", "c")


class Rig:
    """A campaign of node a whose requests are answered well by everybody."""

    def __init__(self) -> None:
        self.campaign = Campaign(coordinator_id=CoordinatorId("a"))
        self.now = Instant(UnixMs(1_000), 1_000)

    def tell(
        self,
        event: Start
        | Withdraw
        | PlanMade
        | PlanMissing
        | Replied
        | RequestFailed
        | ChainProved
        | ProofFailed
        | RoutePublished
        | RouteWithdrawn
        | StageLost
        | PeerChanged
        | TimePassed,
        jitter: float = 0.5,
    ) -> tuple[CampaignEffect, ...]:
        return self.campaign.offer(event, self.now, jitter)

    def wait(self, duration_ms: int) -> tuple[CampaignEffect, ...]:
        self.now = self.now.later(duration_ms)
        return self.tell(TimePassed())

    def serve(self, plan: CampaignPlan = PLAN) -> Run:
        """Start and answer everything until the route is published."""
        self.tell(Start())
        return self.follow(plan)

    def follow(self, plan: CampaignPlan = PLAN) -> Run:
        """Give the plan that was asked for and answer everything."""
        pending = list(self.tell(PlanMade(plan)))
        while pending:
            effect = pending.pop(0)
            match effect:
                case Send(node_id, request):
                    reply = good_reply(request)
                    pending += self.tell(Replied(node_id, request, reply))
                case PublishRoute(run):
                    pending += self.tell(RoutePublished(run.run_id))
                case Report(Step.PROVE):
                    attempt = self.campaign.attempt
                    assert attempt is not None
                    pending += self.tell(ChainProved(attempt.run.run_id))
                case _:
                    pass
        serving = self.campaign.serving
        assert serving is not None
        return serving.run

    def fail_probe(self, jitter: float = 0.5) -> int:
        """Start an attempt and let its probes fail; return the back-off."""
        for effect in self.tell(PlanMade(PLAN)):
            if isinstance(effect, Send):
                self.tell(
                    RequestFailed(effect.node_id, effect.request, "unreachable"), jitter
                )
        deadline = self.campaign.next_deadline()
        assert deadline is not None
        return deadline - self.now.boottime_ms


def good_reply(request: Request) -> Reply:
    match request:
        case ProbeClaim(claim):
            return ProbeAnswer(
                verdict=Accepted(claim), fenced_runs=(), instance_id="store"
            )
        case ClaimCoordinator(claim):
            return ClaimAnswer(verdict=Accepted(claim), instance_id="store")
        case PrepareStage(load):
            return PreparationStatus(stage=load.stage, state=PreparationState.AVAILABLE)
        case LoadStage():
            return StageReady(ready_status(request))
        case _:
            return StageStopped(request.stage)


def plans(effects: tuple[CampaignEffect, ...]) -> list[RequestPlan]:
    return [effect for effect in effects if isinstance(effect, RequestPlan)]


def sent(effects: tuple[CampaignEffect, ...]) -> list[tuple[NodeId, type]]:
    return [(e.node_id, type(e.request)) for e in effects if isinstance(e, Send)]


def messages(effects: tuple[CampaignEffect, ...]) -> list[str]:
    return [effect.message for effect in effects if isinstance(effect, Report)]


def stops(*nodes: NodeId) -> list[tuple[NodeId, type]]:
    return [(node_id, StopStage) for node_id in nodes]


def is_wanted_again(rig: Rig) -> bool:
    return bool(plans(rig.wait(2 * RETRY_TICK_MS)))


# Plans.


def test_a_start_asks_for_a_plan_once() -> None:
    rig = Rig()
    asked = RequestPlan(excluded=(), is_replan=False)

    assert plans(rig.tell(Start())) == [asked]
    assert rig.tell(Start()) == ()
    assert rig.campaign.next_deadline() is None


def test_a_plan_nobody_asked_for_is_ignored() -> None:
    rig = Rig()

    assert rig.tell(PlanMade(PLAN)) == ()
    assert rig.tell(PlanMissing("none")) == ()


def test_the_term_is_the_clock_in_nanoseconds_or_above_all_seen() -> None:
    rig, late = Rig(), Rig()
    late.campaign.newest_term = Term(5_000 * NS_PER_MS)

    assert rig.serve().term == 1_000 * NS_PER_MS
    assert late.serve().term == 5_000 * NS_PER_MS + 1


def test_without_a_plan_it_stands_by_until_the_retry_tick() -> None:
    rig = Rig()
    rig.tell(Start())

    effects = rig.tell(PlanMissing("node b has more memory and coordinates"))

    assert messages(effects) == ["standing by: node b has more memory and coordinates"]
    assert rig.wait(RETRY_TICK_MS - 1) == ()
    assert len(plans(rig.wait(1))) == 1


def test_a_plan_that_cannot_be_meant_is_turned_down() -> None:
    for plan, text in (
        (plan_over("b", "a"), "the plan's first stage is not on this node"),
        (changed(PLAN, stages=()), "the plan's first stage is not on this node"),
        (plan_over("a", "b", "b"), "the plan gives one node several stages"),
        (PLAN, "the plan counts on lost nodes: c"),
    ):
        rig = Rig()
        rig.tell(PeerChanged(C, is_available=False))
        rig.tell(Start())
        (message,) = messages(rig.tell(PlanMade(plan)))
        assert message.startswith(f"standing by: {text}")
        assert rig.campaign.attempt is None


def test_a_peer_change_while_standing_by_plans_again_after_the_debounce() -> None:
    rig = Rig()
    rig.tell(Start())
    rig.tell(PlanMissing("too few nodes"))

    assert rig.tell(PeerChanged(B, is_available=True)) == ()
    assert rig.wait(DEBOUNCE_MS - 1) == ()
    assert len(plans(rig.wait(1))) == 1


def test_a_flapping_peer_does_not_hold_planning_up() -> None:
    rig = Rig()
    rig.tell(Start())
    rig.tell(PlanMissing("too few nodes"))
    rig.wait(RETRY_TICK_MS - 1)

    rig.tell(PeerChanged(B, is_available=True))

    assert len(plans(rig.wait(1))) == 1


# Back-off.


def test_the_back_off_doubles_with_jitter_and_is_bounded() -> None:
    rig = Rig()
    rig.tell(Start())
    lengths = []
    for _ in range(8):
        lengths.append(rig.fail_probe(jitter=0.999_999))
        rig.wait(lengths[-1])

    expected = [BACK_OFF_FIRST_MS << n for n in range(5)] + [BACK_OFF_MAX_MS] * 3
    assert [length + 1 for length in lengths] == expected
    shortest = Rig()
    shortest.tell(Start())
    assert shortest.fail_probe(jitter=0.0) == BACK_OFF_FIRST_MS // 2


def test_a_peer_change_does_not_cut_a_back_off_short() -> None:
    rig = Rig()
    rig.tell(Start())
    rig.campaign._failure_count = 5
    back_off_ms = rig.fail_probe()

    rig.tell(PeerChanged(B, is_available=True))

    assert rig.wait(back_off_ms - 1) == ()
    assert len(plans(rig.wait(1))) == 1


def test_the_next_plan_does_without_the_blamed_until_they_are_back() -> None:
    rig = Rig()
    rig.tell(Start())
    rig.fail_probe()
    rig.tell(PeerChanged(B, is_available=True))

    (asked,) = plans(rig.wait(BACK_OFF_MAX_MS))
    assert asked.excluded == (A, C)

    rig.tell(PlanMissing("too few nodes"))
    (asked,) = plans(rig.wait(RETRY_TICK_MS))
    assert asked.excluded == ()


def test_a_refusal_teaches_the_term_for_the_next_attempt() -> None:
    rig = Rig()
    rig.tell(Start())
    (first, *_) = [e for e in rig.tell(PlanMade(PLAN)) if isinstance(e, Send)]
    assert isinstance(first.request, ProbeClaim)
    seen = Term(rig.now.unix_ms * NS_PER_MS + 77)
    rejected = Rejected(
        claim=first.request.claim, reason=RejectReason.STALE_TERM, current_term=seen
    )
    answer = ProbeAnswer(verdict=rejected, fenced_runs=(), instance_id="")

    rig.tell(Replied(first.node_id, first.request, answer))

    assert rig.campaign.newest_term == seen


def test_a_blocked_attempt_stands_by() -> None:
    rig = Rig()
    rig.tell(Start())
    run = FencedRun(
        run_id=RunId("other"),
        coordinator_id=CoordinatorId("b"),
        term=Term(1),
        is_serving=True,
        is_lease_held=True,
    )
    effects: tuple[CampaignEffect, ...] = ()
    for effect in rig.tell(PlanMade(PLAN)):
        if isinstance(effect, Send) and isinstance(effect.request, ProbeClaim):
            answer = ProbeAnswer(
                verdict=Accepted(effect.request.claim),
                fenced_runs=(run,),
                instance_id="",
            )
            effects = rig.tell(Replied(effect.node_id, effect.request, answer))

    assert "standing by: another run is in the way" in messages(effects)[1]
    assert rig.campaign.next_deadline() == rig.now.boottime_ms + RETRY_TICK_MS


def test_a_final_failure_is_not_tried_again() -> None:
    rig = Rig()
    rig.tell(Start())
    pending = list(rig.tell(PlanMade(PLAN)))
    while pending:
        effect = pending.pop(0)
        if not isinstance(effect, Send):
            continue
        reply = good_reply(effect.request)
        if isinstance(reply, StageReady):
            reply = StageReady(changed(reply.status, layer_end=99))
        pending += rig.tell(Replied(effect.node_id, effect.request, reply))

    assert rig.campaign.attempt is None
    assert not is_wanted_again(rig)
    assert len(plans(rig.tell(Start()))) == 1


# The served run.


def test_a_published_run_is_served_and_needs_no_second_start() -> None:
    rig = Rig()
    run = rig.serve()

    assert run.run_id == f"mesh-split-{run.term}"
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
    assert new.run_id == f"mesh-split-{new.term}-g2"
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


def test_a_fenced_loss_during_a_replan_only_withdraws() -> None:
    rig = Rig()
    run = rig.serve()
    rig.tell(StageLost(run.run_id, C, "killed"))
    planning = rig.tell(StageLost(run.run_id, B, "fenced", is_fenced=True))
    rig.tell(PlanMade(plan_over("a", "b")))

    attempting = rig.tell(StageLost(run.run_id, B, "fenced", is_fenced=True))

    assert WithdrawRoute(run.run_id) in planning
    assert messages(attempting) == [f"{run.run_id}: lost b: fenced"]
    assert rig.campaign.attempt is not None


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
