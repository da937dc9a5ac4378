"""Loads from the last stage to the first."""

from __future__ import annotations

from skippyd.core.coordinator.campaign_effects import CampaignEffect, Report, Send
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.loading import LoadSequence
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    LoadStage,
    StageReady,
)
from skippyd.core.coordinator.phases import (
    CLAIM_TIMEOUT_MS,
    POLL_MS,
    RENEW_AFTER_MS,
    AttemptFailure,
)
from skippyd.core.coordinator.quorum import Tally
from skippyd.core.coordinator.reasons import LoadRefusalReason, RejectReason
from skippyd.core.coordinator.run import Run
from skippyd.core.coordinator.verdict import (
    Accepted,
    FencingInProgress,
    LoadRefused,
    Rejected,
)
from skippyd.ids import CoordinatorId, NodeId, Term, UnixMs
from support.claims import changed, ready_status
from support.cluster import plan_over


NOW = Instant(UnixMs(0), 0)
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
RUN = Run(
    plan=plan_over("a", "b", "c"),
    coordinator_id=CoordinatorId("a"),
    term=Term(1),
    shutdown_generation=1,
)
LOADS = {stage.node_id: RUN.load(stage) for stage in RUN.plan.stages}
CLAIM = RUN.claim(NOW)


def sequence(*accepted: NodeId) -> LoadSequence:
    tally = Tally(RUN.plan.node_ids)
    for node_id in accepted:
        tally.accept(node_id)
    return LoadSequence(RUN, tally)


def sent(effects: tuple[CampaignEffect, ...]) -> list[tuple[NodeId, type]]:
    return [(e.node_id, type(e.request)) for e in effects if isinstance(e, Send)]


def ready(load: LoadStage) -> StageReady:
    return StageReady(ready_status(load))


ACCEPT = ClaimAnswer(verdict=Accepted(CLAIM), instance_id="")
PENDING = ClaimAnswer(verdict=FencingInProgress(CLAIM), instance_id="")
REJECT = ClaimAnswer(
    verdict=Rejected(claim=CLAIM, reason=RejectReason.STALE_TERM, current_term=Term(2)),
    instance_id="",
)


def test_each_stage_is_loaded_when_the_one_after_it_is_ready() -> None:
    loads = sequence(A, B, C)

    assert sent(loads.begin(NOW)) == [(C, LoadStage)]
    assert sent(loads.reply(C, ready(LOADS[C]), NOW)) == [(B, LoadStage)]
    assert sent(loads.reply(B, ready(LOADS[B]), NOW)) == [(A, LoadStage)]
    states = [loads.is_done]
    assert loads.reply(A, ready(LOADS[A]), NOW) == ()
    states.append(loads.is_done)
    assert states == [False, True]
    assert loads.failure is None


def test_a_load_is_announced_with_its_layers() -> None:
    report, _ = sequence(A, B, C).begin(NOW)

    assert isinstance(report, Report)
    assert report.message == "mesh-split-1-ca978112: loading stage-2, layers 20 to 30"


def test_an_answer_out_of_turn_changes_nothing() -> None:
    loads = sequence(A, B, C)
    loads.begin(NOW)
    refusal = LoadRefused(
        reason=LoadRefusalReason.MISSING_CLAIM, term=Term(1), current_term=None
    )

    assert loads.reply(A, ready(LOADS[A]), NOW) == ()
    failed = LoadFailed(stage=LOADS[A].stage, refusal=refusal)
    assert loads.reply(A, failed, NOW) == ()
    loads.request_failed(B, "unreachable")
    assert loads.failure is None


def test_a_stage_that_has_not_accepted_is_claimed_before_its_load() -> None:
    loads = sequence(A, B)

    assert sent(loads.begin(NOW)) == [(C, ClaimCoordinator)]
    assert loads.next_deadline() == CLAIM_TIMEOUT_MS
    assert loads.reply(C, ready(LOADS[C]), NOW) == ()
    assert sent(loads.reply(C, ACCEPT, NOW)) == [(C, LoadStage)]
    assert loads.reply(C, ACCEPT, NOW) == ()


def test_a_claim_that_waits_for_fencing_is_repeated() -> None:
    loads = sequence(A)
    loads.begin(NOW)

    assert loads.reply(C, PENDING, NOW) == ()
    assert loads.reply(B, PENDING, NOW) == ()
    assert loads.next_deadline() == POLL_MS
    later = NOW.later(POLL_MS)
    assert sent(loads.pass_time(later)) == [(C, ClaimCoordinator)]
    assert loads.next_deadline() == CLAIM_TIMEOUT_MS
    assert loads.reply(B, ACCEPT, later) == ()
    loads.reply(C, ACCEPT, later)
    assert sent(loads.reply(C, ready(LOADS[C]), later)) == [(B, LoadStage)]


def test_a_rejection_ends_the_loads_of_the_stage_whose_turn_it_is() -> None:
    loads = sequence(A)
    loads.begin(NOW)
    loads.reply(B, REJECT, NOW)
    assert loads.failure is None

    loads.reply(C, REJECT, NOW)

    assert loads.failure == AttemptFailure(
        reason="load of stage-2 at c failed: stale coordinator term 1 < 2"
    )


def test_a_node_that_a_rival_has_claimed_meanwhile_is_not_to_blame() -> None:
    """The next plan may count on it; one that refuses for itself is left out."""
    overtaken, unfit = sequence(C), sequence(A)
    for loads in (overtaken, unfit):
        loads.begin(NOW)
    superseded = LoadRefused(
        reason=LoadRefusalReason.SUPERSEDED, term=Term(1), current_term=Term(2)
    )
    quarantined = Rejected(
        claim=CLAIM, reason=RejectReason.QUARANTINED, current_term=Term(1)
    )
    overtaken.reply(C, LoadFailed(stage=LOADS[C].stage, refusal=superseded), NOW)
    unfit.reply(C, ClaimAnswer(verdict=quarantined, instance_id=""), NOW)

    assert [loads.failure and loads.failure.blamed for loads in (overtaken, unfit)] == [
        (),
        (C,),
    ]


def test_each_way_a_load_can_fail_blames_its_node() -> None:
    unreachable, slow, unclaimed = sequence(C), sequence(C), sequence()
    for loads in (unreachable, slow, unclaimed):
        loads.begin(NOW)
    unreachable.request_failed(C, "connection lost")
    slow.pass_time(NOW.later(RUN.plan.load_timeout_ms))
    unclaimed.pass_time(NOW.later(CLAIM_TIMEOUT_MS))
    reasons = [
        loads.failure and loads.failure.reason
        for loads in (unreachable, slow, unclaimed)
    ]

    assert reasons == [
        "load of stage-2 at c failed: connection lost",
        "load of stage-2 at c failed: not ready in time",
        "load of stage-2 at c failed: not claimed",
    ]


def test_a_refused_load_fails_with_its_text() -> None:
    loads = sequence(C)
    loads.begin(NOW)
    refusal = LoadRefused(
        reason=LoadRefusalReason.MISSING_CLAIM, term=Term(1), current_term=None
    )

    loads.reply(C, LoadFailed(stage=LOADS[C].stage, refusal=refusal), NOW)

    assert loads.failure is not None
    assert loads.failure.reason.endswith(refusal.text)
    assert not loads.failure.is_final


def test_a_false_echo_is_final() -> None:
    loads = sequence(C)
    loads.begin(NOW)
    status = changed(ready_status(LOADS[C]), layer_end=31, backend="other")

    loads.reply(C, StageReady(status), NOW)

    assert loads.failure == AttemptFailure(
        reason="stage-2 at c is not what was asked for: backend: sent 'skippy', "
        "echoed 'other'; layer_end: sent 30, echoed 31",
        is_final=True,
    )


def test_long_loads_renew_the_lease_that_the_later_ones_need() -> None:
    loads = sequence(A, B, C)
    loads.begin(NOW)
    early, late = NOW.later(RENEW_AFTER_MS - 1), NOW.later(RENEW_AFTER_MS)

    assert sent(loads.reply(C, ready(LOADS[C]), early)) == [(B, LoadStage)]
    assert sent(loads.reply(B, ready(LOADS[B]), late)) == [
        (A, ClaimCoordinator),
        (B, ClaimCoordinator),
        (C, ClaimCoordinator),
        (A, LoadStage),
    ]
