"""The stage side of one node: effects in their order, answers exactly once."""

from __future__ import annotations

from skippyd.core.coordinator.control import FENCING_ANSWER_MS
from skippyd.core.coordinator.control_effects import (
    Answer,
    CancelPreparation,
    PreparationMoved,
    Received,
    ShutDownStage,
    StartPreparation,
    TimePassed,
)
from skippyd.core.coordinator.instant import MAX_LEASE_MS
from skippyd.core.coordinator.memory import (
    PersistFence,
    PersistQuarantine,
)
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimAnswer,
    ClaimCoordinator,
    LoadStage,
    Origin,
    PreparationState,
    PreparationStatus,
    PrepareFailed,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    StageState,
    StopFailed,
)
from skippyd.core.coordinator.reasons import LoadRefusalReason, RejectReason
from skippyd.core.coordinator.stages import LiveStage
from skippyd.core.coordinator.verdict import (
    Accepted,
    FencedRun,
    FencingInProgress,
    Rejected,
    Superseded,
)
from skippyd.ids import CoordinatorId, RunId, Term
from support.claims import (
    KEY,
    changed,
    claim,
    load_of,
    local_load,
    ready_status,
    stop_of,
)
from support.stage_sides import START, kinds, load_reason, new_node, replies


# Claims and probes.


def test_a_claim_is_durable_before_its_answer() -> None:
    effects = new_node().claim(10)

    assert kinds(effects) == [PersistFence, Answer]
    assert replies(effects)[1] == ClaimAnswer(
        verdict=Accepted(claim(10, lease=100_000)), instance_id="store"
    )


def test_a_refused_claim_only_answers() -> None:
    node = new_node()
    node.claim(11)

    assert kinds(node.claim(10)) == [Answer]


def test_a_newer_claim_persists_ends_old_work_and_answers_after_it_ended() -> None:
    """I3: the old stage is not live any more when the answer leaves."""
    node = new_node()
    load = node.start(10)
    long_gone = load_of(claim(9))
    node.control.offer(
        Received(
            request_id=90,
            request=PrepareStage(load_of(claim(11))),
            origin=Origin.NETWORK,
        ),
        node.now,
    )

    effects = node.claim(12)

    assert kinds(effects) == [PersistFence, ShutDownStage, CancelPreparation]
    assert effects[1] == ShutDownStage(load, "superseded by newer coordinator term 12")
    assert node.states == [StageState.STOPPING]
    assert node.control.next_deadline() == node.now.boottime_ms + FENCING_ANSWER_MS
    assert node.end(long_gone) == ()
    (answer,) = node.end(load)
    assert answer == Answer(
        node.count,
        ClaimAnswer(
            verdict=Superseded(claim(12, lease=100_000), Term(10)), instance_id="store"
        ),
    )
    assert node.states == []
    assert node.control.next_deadline() is None


def test_an_open_load_of_the_old_term_is_refused_last() -> None:
    node = new_node()
    node.claim(10)
    node.ask(load_of(claim(10)))

    effects = node.claim(11)

    assert kinds(effects) == [PersistFence, ShutDownStage, Answer]
    assert load_reason(replies(effects)[2]) is LoadRefusalReason.SUPERSEDED


def test_a_claim_is_told_to_ask_again_when_old_work_takes_too_long() -> None:
    node = new_node()
    load = node.start(10)
    node.claim(11)
    assert node.control.offer(TimePassed(), node.now.later(FENCING_ANSWER_MS - 1)) == ()

    effects = node.control.offer(TimePassed(), node.now.later(FENCING_ANSWER_MS))

    verdict = FencingInProgress(claim(11, lease=100_000))
    assert effects == (
        Answer(node.count, ClaimAnswer(verdict=verdict, instance_id="store")),
    )
    assert node.claim(11) == ()
    assert kinds(node.end(load)) == [Answer]
    assert kinds(node.claim(11)) == [Answer]


def test_a_waiting_claim_loses_to_a_newer_one() -> None:
    node = new_node()
    load = node.start(10)
    node.claim(11)
    older = node.count
    node.claim(12)

    answers = replies(node.end(load))

    lost, won = answers[older], answers[node.count]
    assert isinstance(lost, ClaimAnswer)
    assert isinstance(won, ClaimAnswer)
    assert isinstance(lost.verdict, Rejected)
    assert lost.verdict.text == "stale coordinator term 11 < 12"
    assert isinstance(won.verdict, Superseded)


def test_work_of_other_models_neither_is_fenced_nor_holds_a_claim_up() -> None:
    node = new_node()
    node.start(10)
    other = changed(KEY, package_ref="hf://org/other")

    effects = node.ask(ClaimCoordinator(claim(11, key=other)))
    assert kinds(effects) == [PersistFence, Answer]

    foreign = changed(load_of(claim(11)), key=other)
    node.ask(foreign)
    node.claim(12)
    assert kinds(node.end(foreign)) == [Answer]
    assert node.states == [StageState.STOPPING]


def test_a_probe_says_what_a_claim_would_end_and_ends_nothing() -> None:
    node = new_node()
    node.start(10)

    answer = replies(node.ask(ProbeClaim(claim(11))))[node.count]

    run = FencedRun(
        run_id=RunId("run-a-10"),
        coordinator_id=CoordinatorId("a"),
        term=Term(10),
        is_serving=True,
        is_lease_held=True,
    )
    assert answer == ProbeAnswer(
        verdict=Superseded(claim(11), Term(10)), fenced_runs=(run,), instance_id="store"
    )
    assert node.states == [StageState.READY]


def test_a_refused_or_harmless_probe_lists_no_runs() -> None:
    node = new_node()
    load = node.start(10)

    stale = replies(node.ask(ProbeClaim(claim(9))))[node.count]
    own = replies(node.ask(ProbeClaim(claim(10))))[node.count]

    assert isinstance(stale, ProbeAnswer)
    assert isinstance(stale.verdict, Rejected)
    assert isinstance(own, ProbeAnswer)
    assert isinstance(own.verdict, Accepted)
    assert (stale.fenced_runs, own.fenced_runs) == ((), ())
    assert node.control.snapshot() == (
        LiveStage(load=load, state=StageState.READY, status=ready_status(load)),
    )


def test_a_late_claim_of_a_stopped_run_ends_no_local_stage() -> None:
    node = new_node()
    node.claim(10)
    node.ask(stop_of(load_of(claim(10))))
    node.ask(local_load(), Origin.ADMIN)
    node.ready(local_load())

    for request in (ProbeClaim(claim(10)), ClaimCoordinator(claim(10))):
        (answer,) = node.ask(request)
        assert isinstance(answer, Answer)
        assert isinstance(answer.reply, ProbeAnswer | ClaimAnswer)
        assert isinstance(answer.reply.verdict, Rejected)
        assert answer.reply.verdict.reason is RejectReason.RUN_STOPPED
    assert node.states == [StageState.READY]


# Preparations and time.


def test_a_preparation_starts_once_and_tells_how_far_it_is() -> None:
    node = new_node()
    load = load_of(claim(10))
    assigned = PreparationStatus(stage=load.stage, state=PreparationState.ASSIGNED)

    assert node.ask(PrepareStage(load)) == (
        StartPreparation(load),
        Answer(1, assigned),
    )
    node.control.offer(
        PreparationMoved(load=load, state=PreparationState.AVAILABLE), node.now
    )
    available = PreparationStatus(stage=load.stage, state=PreparationState.AVAILABLE)
    assert node.ask(PrepareStage(load)) == (Answer(2, available),)


def test_a_started_stage_takes_its_preparation_over() -> None:
    node = new_node()
    load = load_of(claim(10))
    node.ask(PrepareStage(load))
    node.start(10)

    assert CancelPreparation not in kinds(node.claim(11))


def test_a_refused_preparation_says_why() -> None:
    node = new_node()
    node.claim(11)
    cancelled = load_of(claim(12))
    node.ask(cancel_of(cancelled))

    by_term = replies(node.ask(PrepareStage(load_of(claim(10)))))[node.count]
    by_cancel = replies(node.ask(PrepareStage(cancelled)))[node.count]

    assert isinstance(by_term, PrepareFailed)
    assert by_term.refusal.text == "stale coordinator term 10 < 11"
    assert isinstance(by_cancel, PrepareFailed)
    assert by_cancel.refusal.text == "stale shutdown generation"


def cancel_of(load: LoadStage, generation: int = 1) -> CancelPrepareStage:
    return CancelPrepareStage(
        key=load.key,
        stage=load.stage,
        coordinator_term=load.coordinator_term,
        shutdown_generation=generation,
    )


def test_a_preparation_is_cancelled_unless_the_cancel_is_old() -> None:
    node = new_node()
    load = load_of(claim(10), generation=2)
    node.ask(PrepareStage(load))

    (stale,) = node.ask(cancel_of(load, 1))
    assert isinstance(stale, Answer)
    assert isinstance(stale.reply, StopFailed)
    assert stale.reply.refusal.text == "stale shutdown generation"
    assert kinds(node.ask(cancel_of(load, 2))) == [CancelPreparation, Answer]


def test_a_quarantine_ends_with_time() -> None:
    node = new_node(is_quarantined=True)

    assert node.control.next_deadline() == START.boottime_ms + MAX_LEASE_MS
    assert node.control.offer(TimePassed(), START.later(MAX_LEASE_MS)) == (
        PersistQuarantine("store"),
    )
    assert node.control.fence.quarantined_until_boottime_ms is None
