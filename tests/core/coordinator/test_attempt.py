"""One attempt from probe to published, phase by phase."""

from __future__ import annotations

import pytest

from skippyd.core.coordinator.campaign_effects import (
    PersistTerm,
    ProveChain,
    PublishRoute,
    StageLost,
    WithdrawRoute,
)
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    LoadStage,
    PreparationState,
    PrepareFailed,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    StageReady,
    StopStage,
)
from skippyd.core.coordinator.phases import (
    CLAIM_TIMEOUT_MS,
    FIRST_POLL_MS,
    POLL_MS,
    PROBE_FRESH_MS,
    PROBE_TIMEOUT_MS,
    PROVE_TIMEOUT_MS,
    PUBLISH_TIMEOUT_MS,
    AttemptFailure,
    Phase,
)
from skippyd.core.coordinator.reasons import (
    LoadRefusalReason,
    PrepareRefusalReason,
    RejectReason,
)
from skippyd.core.coordinator.run import Run
from skippyd.core.coordinator.verdict import (
    Accepted,
    FencedRun,
    FencingInProgress,
    LoadRefused,
    PrepareRefused,
)
from skippyd.ids import CoordinatorId, NodeId, RunId, Term
from support.attempts import NODES, NOW, A, B, C, Rig, sent, to_all
from support.claims import ready_status


def test_the_order_is_probe_prepare_claim_load_prove_publish() -> None:
    rig = Rig()
    assert sent(rig.effects) == to_all(ProbeClaim)
    rig.accept_probes()
    assert sent(rig.effects) == to_all(PrepareStage)
    for node_id in NODES:
        rig.prepared(node_id)
    assert isinstance(rig.effects[1], PersistTerm)
    assert rig.effects[1].term == 7
    assert sent(rig.effects) == to_all(ClaimCoordinator)
    for node_id in NODES:
        rig.accept_claim(node_id)
    for node_id, following in ((C, B), (B, A)):
        load = rig.loads[node_id]
        assert sent(rig.effects) == [(node_id, LoadStage)]
        rig.reply(node_id, load, StageReady(ready_status(load)))
        assert sent(rig.effects) == [(following, LoadStage)]
    rig.reply(A, rig.loads[A], StageReady(ready_status(rig.loads[A])))
    assert rig.effects[-1] == ProveChain(rig.run)
    assert rig.attempt.prove(rig.now)[-1] == PublishRoute(rig.run)
    rig.attempt.publish()
    assert rig.attempt.phase is Phase.PUBLISHED
    assert rig.attempt.failure is None


# Probing.


def test_a_claim_is_not_sent_unless_every_stage_would_accept() -> None:
    """Two of three would do for a quorum, but all three must load."""
    rig = Rig()
    rig.accept_probes(nodes=(A, B))
    rig.fail(C, rig.probe)

    assert rig.failure == AttemptFailure(
        reason="coordinator probe for org/model accepted by 2/3 planned stage(s), "
        "need 2: c: unreachable",
        blamed=(C,),
    )
    assert rig.attempt.abandon() == ()


def test_silence_ends_the_probes_and_blames_the_silent() -> None:
    rig = Rig()
    rig.accept_probes(nodes=(A,))
    rig.wait(PROBE_TIMEOUT_MS - 1)
    assert rig.attempt.failure is None

    rig.wait(1)

    assert rig.failure.blamed == (B, C)
    assert "b: no answer in time" in rig.failure.reason


@pytest.mark.parametrize(
    ("reason", "blamed"),
    [
        (RejectReason.STALE_TERM, ()),
        (RejectReason.CONFLICTING_SAME_TERM, ()),
        (RejectReason.QUARANTINED, (C,)),
        (RejectReason.TOO_MANY_MODELS, (C,)),
    ],
)
def test_only_refusals_that_no_term_overcomes_blame_the_node(
    reason: RejectReason, blamed: tuple[NodeId, ...]
) -> None:
    rig = Rig()
    rig.accept_probes(nodes=(A, B))
    rig.reject_probe(C, reason)
    assert rig.failure.blamed == blamed


def serving_run(
    coordinator: str | None = "b", *, is_lease_held: bool = True
) -> FencedRun:
    return FencedRun(
        run_id=RunId("mesh-split-3"),
        coordinator_id=None if coordinator is None else CoordinatorId(coordinator),
        term=Term(3),
        is_serving=coordinator == "b",
        is_lease_held=is_lease_held,
    )


def test_a_run_that_another_coordinator_serves_or_starts_is_in_the_way() -> None:
    rig, other = Rig(), Rig()
    rig.accept_probes(serving_run("b"))
    other.accept_probes(serving_run("d"))

    assert rig.failure.is_blocked
    assert "a: mesh-split-3 of coordinator b serves" in rig.failure.reason
    assert "a: mesh-split-3 of coordinator d starts" in other.failure.reason


def test_a_local_stage_is_in_the_way_too() -> None:
    rig = Rig()
    rig.accept_probes(serving_run(None))

    assert rig.failure.is_blocked
    assert "a local stage without a coordinator" in rig.failure.reason


def test_runs_of_lost_expired_or_replaceable_owners_and_own_ones_are_not() -> None:
    for rig, run in (
        (Rig(lost=frozenset({B})), serving_run("b")),
        (Rig(), serving_run("b", is_lease_held=False)),
        (Rig(may_replace=True), serving_run("b")),
        (Rig(may_replace=True), serving_run(None)),
        (Rig(), serving_run("a")),
    ):
        rig.accept_probes(run)
        assert rig.attempt.phase is Phase.PREPARING


# Preparing.


def test_preparations_are_asked_about_until_all_are_there() -> None:
    rig = Rig().to_preparing()
    rig.prepared(A)
    rig.prepared(B, PreparationState.DOWNLOADING)

    assert rig.attempt.next_deadline() == FIRST_POLL_MS
    rig.wait(FIRST_POLL_MS + POLL_MS)
    assert sent(rig.effects) == [(B, PrepareStage), (C, PrepareStage)]
    rig.prepared(B, PreparationState.READY)
    rig.prepared(C)

    assert sent(rig.effects) == to_all(ClaimCoordinator)


def test_old_probes_are_repeated_after_a_long_preparation() -> None:
    rig = Rig().to_preparing()
    rig.now = rig.now.later(PROBE_FRESH_MS + 1)
    for node_id in NODES:
        rig.prepared(node_id)
    assert sent(rig.effects) == to_all(ProbeClaim)

    rig.accept_probes()

    assert sent(rig.effects) == to_all(ClaimCoordinator)


@pytest.mark.parametrize("state", [PreparationState.FAILED, PreparationState.CANCELLED])
def test_a_failed_preparation_ends_the_attempt(state: PreparationState) -> None:
    rig = Rig().to_preparing()
    rig.prepared(B, state)

    assert rig.failure == AttemptFailure(
        reason="prepare at b failed: disk full", blamed=(B,)
    )
    assert sent(rig.attempt.abandon()) == to_all(CancelPrepareStage)


def test_a_refused_or_unreachable_preparation_ends_the_attempt() -> None:
    overtaken, refused, unreachable = (Rig().to_preparing() for _ in range(3))
    load = refused.loads[B]
    stale, bad = PrepareRefusalReason.STALE_TERM, PrepareRefusalReason.UNUSABLE_FIELD
    for rig, why, current in ((overtaken, stale, Term(9)), (refused, bad, None)):
        refusal = PrepareRefused(reason=why, term=Term(7), current_term=current)
        failed = PrepareFailed(stage=load.stage, refusal=refusal)
        rig.reply(B, PrepareStage(load), failed)
    unreachable.fail(B, PrepareStage(load))

    reason = "prepare at b failed: stale coordinator term 7 < 9"
    assert overtaken.failure == AttemptFailure(reason=reason), "a rival was quicker"
    assert refused.failure.blamed == unreachable.failure.blamed == (B,)


def test_a_preparation_that_takes_too_long_blames_who_is_not_done() -> None:
    rig = Rig().to_preparing()
    rig.prepared(A)
    rig.wait(rig.run.plan.prepare_timeout_ms)

    assert rig.failure == AttemptFailure(
        reason="not prepared in time: b, c", blamed=(B, C)
    )


# Claiming.


def test_a_quorum_is_enough_when_a_stage_is_unreachable() -> None:
    rig = Rig().to_claiming()
    rig.accept_claim(A)
    rig.fail(B, rig.claim)
    assert rig.attempt.phase is Phase.CLAIMING
    rig.accept_claim(C)

    assert sent(rig.effects) == [(C, LoadStage)]


def test_a_quorum_is_enough_when_a_stage_stays_silent() -> None:
    rig = Rig().to_claiming()
    rig.accept_claim(A)
    rig.accept_claim(C)
    rig.wait(CLAIM_TIMEOUT_MS)

    assert sent(rig.effects) == [(C, LoadStage)]


def test_without_quorum_nothing_is_loaded_and_everything_is_stopped() -> None:
    rig = Rig().to_claiming()
    rig.accept_claim(A)
    rig.fail(B, rig.claim)
    rig.answer_claim(C, rig.rejected(RejectReason.STALE_TERM))

    assert rig.failure == AttemptFailure(
        reason="coordinator claim for org/model accepted by 1/3 planned stage(s), "
        "need 2: b: unreachable; c: stale coordinator term 7 < 9",
        blamed=(B,),
    )
    assert rig.effects == ()
    assert sent(rig.attempt.abandon()) == to_all(StopStage) + to_all(CancelPrepareStage)


def test_a_quorum_does_not_help_when_a_stage_that_must_load_refuses() -> None:
    rig = Rig().to_claiming()
    rig.accept_claim(A)
    rig.accept_claim(B)
    rig.answer_claim(C, rig.rejected(RejectReason.STALE_TERM))

    assert rig.failure == AttemptFailure(
        reason="claim refused by c: stale coordinator term 7 < 9"
    )


def test_a_stage_whose_store_changed_since_the_probe_does_not_count() -> None:
    """I10: it may have forgotten what it promised."""
    rig = Rig().to_claiming()
    answer = ClaimAnswer(verdict=Accepted(rig.claim.claim), instance_id="new store")
    rig.reply(C, rig.claim, answer)
    rig.accept_claim(A)
    rig.accept_claim(B)

    assert rig.failure.reason == (
        "claim refused by c: its fence store changed since the probe"
    )


def test_a_claim_that_waits_for_fencing_is_repeated_to_those_still_silent() -> None:
    rig = Rig().to_claiming()
    rig.accept_claim(A)
    rig.answer_claim(B, FencingInProgress(rig.claim.claim))
    rig.wait(POLL_MS)

    assert sent(rig.effects) == [(B, ClaimCoordinator), (C, ClaimCoordinator)]
    assert rig.attempt.phase is Phase.CLAIMING


# Loading and after.


def test_a_failed_load_stops_the_entire_run() -> None:
    refused, unreachable, slow = (Rig().to_loading() for _ in range(3))
    load = refused.loads[C]
    refusal = LoadRefused(
        reason=LoadRefusalReason.MISSING_CLAIM, term=Term(7), current_term=None
    )
    refused.reply(C, load, LoadFailed(stage=load.stage, refusal=refusal))
    unreachable.fail(C, load)
    slow.wait(slow.run.plan.load_timeout_ms)

    for rig in (refused, unreachable, slow):
        assert rig.failure.blamed == (C,)
        assert sent(rig.attempt.abandon())[:3] == to_all(StopStage)


def test_a_chain_that_does_not_answer_is_not_published() -> None:
    failed, silent = Rig().to_proving(), Rig().to_proving()
    failed.attempt.fail_proof("timeout at stage-1")
    silent.wait(PROVE_TIMEOUT_MS)

    assert failed.failure.reason == ("the chain does not answer: timeout at stage-1")
    assert silent.failure.reason == "proving took too long"
    assert failed.attempt.prove(failed.now) == ()


def test_a_route_that_may_be_out_is_withdrawn_first() -> None:
    rig = Rig().to_publishing()
    rig.wait(PUBLISH_TIMEOUT_MS)

    assert rig.failure.reason == "publishing took too long"
    assert rig.attempt.abandon()[0] == WithdrawRoute(rig.run.run_id)
    rig.attempt.publish()
    assert rig.attempt.phase is Phase.PUBLISHING


def test_a_lost_stage_ends_the_attempt_and_a_fenced_one_blames_nobody() -> None:
    lost, fenced = Rig().to_proving(), Rig().to_proving()
    lost.attempt.lose(StageLost(lost.run.run_id, B, "killed"))
    fenced.attempt.lose(StageLost(fenced.run.run_id, B, "fenced", is_fenced=True))
    lost.attempt.fail_proof("later")

    assert lost.failure == AttemptFailure(reason="lost b: killed", blamed=(B,))
    assert fenced.failure.blamed == ()


# What does not fit.


def test_answers_of_another_run_or_phase_are_lost_on_it() -> None:
    rig = Rig()
    other = Run(
        plan=rig.run.plan,
        coordinator_id=rig.run.coordinator_id,
        term=Term(6),
        shutdown_generation=1,
    )
    old_probe = ProbeClaim(other.claim(NOW))
    answer = ProbeAnswer(
        verdict=Accepted(old_probe.claim), fenced_runs=(), instance_id=""
    )
    for node_id in NODES:
        rig.reply(node_id, old_probe, answer)
        rig.fail(node_id, old_probe)
        rig.prepared(node_id)
        rig.fail(node_id, rig.loads[node_id])

    assert rig.effects == ()
    assert rig.attempt.prove(rig.now) == ()
    rig.attempt.publish()
    assert rig.attempt.phase is Phase.PROBING


def test_a_failed_attempt_does_nothing_more() -> None:
    rig = Rig().to_preparing()
    rig.prepared(B, PreparationState.FAILED)

    rig.prepared(A)
    effects = rig.effects
    rig.fail(A, PrepareStage(rig.loads[A]))
    assert (effects, rig.effects) == ((), ())
    rig.wait(rig.run.plan.prepare_timeout_ms)
    assert rig.effects == ()


def test_a_deadline_that_has_not_come_does_nothing() -> None:
    rig = Rig().to_claiming()
    rig.answer_claim(A, FencingInProgress(rig.claim.claim))

    assert rig.attempt.next_deadline() == POLL_MS
    rig.wait(POLL_MS - 1)
    assert rig.effects == ()
