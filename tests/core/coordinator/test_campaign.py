"""The proposer before it serves: plans, back-off, standby."""

from __future__ import annotations

from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    PeerChanged,
    PlanMade,
    PlanMissing,
    Replied,
    RequestPlan,
    Send,
    Start,
)
from skippyd.core.coordinator.instant import NS_PER_MS
from skippyd.core.coordinator.messages import (
    ProbeAnswer,
    ProbeClaim,
    StageReady,
)
from skippyd.core.coordinator.reasons import RejectReason
from skippyd.core.coordinator.retrying import (
    BACK_OFF_FIRST_MS,
    BACK_OFF_MAX_MS,
    DEBOUNCE_MS,
    RETRY_TICK_MS,
)
from skippyd.core.coordinator.verdict import Accepted, FencedRun, Rejected
from skippyd.ids import CoordinatorId, RunId, Term
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
)
from support.claims import changed
from support.cluster import plan_over


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
    rig.campaign._retry.failure_count = 5
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
