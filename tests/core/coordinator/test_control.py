"""The stage side of one node: effects in their order, answers exactly once."""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.control import FENCING_ANSWER_MS, StageControl
from skippyd.core.coordinator.control_effects import (
    Answer,
    CancelPreparation,
    ControlEffect,
    PreparationMoved,
    Received,
    ShutDownStage,
    StageBecameReady,
    StageEnded,
    StartPreparation,
    StartStage,
    TimePassed,
)
from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import MAX_LEASE_MS, Instant
from skippyd.core.coordinator.memory import (
    FenceSnapshot,
    PersistFence,
    PersistQuarantine,
)
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    LoadStage,
    Origin,
    PreparationState,
    PreparationStatus,
    PrepareFailed,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    Reply,
    Request,
    StageReady,
    StageState,
    StageStopped,
    StopFailed,
)
from skippyd.core.coordinator.reasons import LoadRefusalReason
from skippyd.core.coordinator.stages import LiveStage
from skippyd.core.coordinator.verdict import (
    Accepted,
    FencedRun,
    FencingInProgress,
    Rejected,
    Superseded,
)
from skippyd.ids import CoordinatorId, RunId, Term, UnixMs
from support.claims import (
    KEY,
    changed,
    claim,
    load_of,
    local_load,
    ready_status,
    stop_of,
)


START = Instant(UnixMs(1_000), 1_000)


@attrs.define
class Node:
    """A stage side under test; numbers its requests and keeps its clock."""

    control: StageControl
    now: Instant = START
    count: int = 0

    def ask(
        self, request: Request, origin: Origin = Origin.NETWORK
    ) -> tuple[ControlEffect, ...]:
        self.count += 1
        event = Received(request_id=self.count, request=request, origin=origin)
        return self.control.offer(event, self.now)

    def claim(self, term: int, lease: int = 100_000) -> tuple[ControlEffect, ...]:
        return self.ask(ClaimCoordinator(claim(term, lease=lease)))

    def start(self, term: int = 10) -> LoadStage:
        """Claim, load and become ready."""
        self.claim(term)
        load = load_of(claim(term))
        self.ask(load)
        self.ready(load)
        return load

    def ready(self, load: LoadStage) -> tuple[ControlEffect, ...]:
        return self.control.offer(StageBecameReady(load, ready_status(load)), self.now)

    def end(self, load: LoadStage, detail: str = "") -> tuple[ControlEffect, ...]:
        return self.control.offer(StageEnded(load, detail), self.now)

    @property
    def states(self) -> list[StageState]:
        return [stage.state for stage in self.control.snapshot()]


def new_node(*, is_quarantined: bool = False) -> Node:
    snapshot = FenceSnapshot(instance_id="store", is_quarantined=is_quarantined)
    return Node(StageControl(ClaimFence.restore(snapshot, START)))


def kinds(effects: tuple[ControlEffect, ...]) -> list[type]:
    return [type(effect) for effect in effects]


def replies(effects: tuple[ControlEffect, ...]) -> dict[int, Reply]:
    return {e.request_id: e.reply for e in effects if isinstance(e, Answer)}


def load_reason(reply: Reply) -> LoadRefusalReason:
    assert isinstance(reply, LoadFailed)
    return reply.refusal.reason


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


# Loads.


def test_a_load_starts_once_and_answers_everyone_when_ready() -> None:
    node = new_node()
    node.claim(10)
    load = load_of(claim(10))

    assert node.ask(load) == (StartStage(load),)
    assert node.states == [StageState.STARTING]
    assert node.ask(load) == ()
    ready = StageReady(ready_status(load))
    assert node.ready(load) == (Answer(2, ready), Answer(3, ready))
    assert node.ask(load) == (Answer(4, ready),)
    assert node.ready(load) == ()


def test_a_refused_load_starts_nothing() -> None:
    node = new_node()

    effects = node.ask(load_of(claim(10)))

    assert load_reason(replies(effects)[1]) is LoadRefusalReason.MISSING_CLAIM
    assert node.states == []


def test_a_stage_that_may_not_be_ready_any_more_is_ended() -> None:
    """I14: the lease ran out while the stage was loading."""
    node = new_node()
    node.claim(10, lease=2_000)
    load = load_of(claim(10))
    node.ask(load)
    node.now = node.now.later(1_000)

    effects = node.ready(load)

    assert kinds(effects) == [ShutDownStage, Answer]
    assert load_reason(replies(effects)[2]) is LoadRefusalReason.EXPIRED_LEASE
    assert node.states == [StageState.STOPPING]


def test_a_stage_that_ends_before_it_is_ready_fails_its_load() -> None:
    node = new_node()
    node.claim(10)
    load = load_of(claim(10))
    node.ask(load)

    (answer,) = node.end(load, "signal 6")

    assert isinstance(answer, Answer)
    assert isinstance(answer.reply, LoadFailed)
    assert answer.reply.refusal.text == (
        "the stage ended before it was ready: signal 6"
    )
    assert node.end(load) == ()
    assert node.ready(load) == ()


def test_one_model_has_one_live_stage() -> None:
    node = new_node()
    node.start(10)

    effects = node.ask(load_of(claim(10), stage="stage-2"))

    assert load_reason(replies(effects)[node.count]) is (
        LoadRefusalReason.OTHER_STAGE_LIVE
    )


def test_a_newer_generation_replaces_the_stage_once_its_memory_is_free() -> None:
    node = new_node()
    load = node.start(10)
    newer = load_of(claim(10), generation=2)

    assert node.ask(newer) == (ShutDownStage(load, "the stage was asked to stop"),)
    assert node.ask(newer) == ()
    other = load_of(claim(10), generation=3)
    refused = replies(node.ask(other))[node.count]
    assert load_reason(refused) is LoadRefusalReason.OTHER_STAGE_LIVE
    assert node.end(load) == (StartStage(newer),)
    assert kinds(node.ready(newer)) == [Answer, Answer]
    stale = replies(node.ask(load))[node.count]
    assert load_reason(stale) is LoadRefusalReason.STALE_GENERATION


def test_a_load_with_the_same_generation_and_other_contents_is_stale() -> None:
    node = new_node()
    load = node.start(10)

    effects = node.ask(changed(load, admission="another"))

    assert load_reason(replies(effects)[node.count]) is (
        LoadRefusalReason.STALE_GENERATION
    )


def test_a_load_waits_for_the_memory_of_the_old_run() -> None:
    """I7: claimed while the old process is still going."""
    node = new_node()
    load = node.start(10)
    node.claim(11)
    newer = load_of(claim(11))

    assert node.ask(newer) == ()
    effects = node.end(load)

    assert kinds(effects) == [Answer, StartStage]
    assert effects[1] == StartStage(newer)


def test_a_waiting_load_is_checked_again_before_it_starts() -> None:
    node = new_node()
    load = node.start(10)
    node.claim(11, lease=2_000)
    node.ask(load_of(claim(11)))
    waiting = node.count
    node.now = node.now.later(1_000)

    answers = replies(node.end(load))

    assert load_reason(answers[waiting]) is LoadRefusalReason.EXPIRED_LEASE
    assert node.states == []


def test_a_waiting_load_falls_with_its_claim() -> None:
    node = new_node()
    load = node.start(10)
    node.claim(11)
    node.ask(load_of(claim(11)))
    waiting = node.count

    effects = node.claim(12)

    assert load_reason(replies(effects)[waiting]) is LoadRefusalReason.SUPERSEDED
    assert StartStage(load_of(claim(11))) not in node.end(load)


def test_a_waiting_load_of_the_accepted_claim_survives_its_renewal() -> None:
    node = new_node()
    load = node.start(10)
    node.claim(11)
    newer = load_of(claim(11))
    node.ask(newer)

    node.claim(11, lease=200_000)

    assert StartStage(newer) in node.end(load)


# Stops.


def test_a_stop_is_durable_then_ends_the_stage_then_answers() -> None:
    node = new_node()
    load = node.start(10)

    effects = node.ask(stop_of(load))
    first = node.count

    assert kinds(effects) == [PersistFence, ShutDownStage]
    assert node.ask(stop_of(load)) == ()
    stopped = StageStopped(load.stage)
    assert node.end(load) == (Answer(first, stopped), Answer(first + 1, stopped))
    late = replies(node.ask(load))[node.count]
    assert load_reason(late) is LoadRefusalReason.RUN_STOPPED


def test_a_stop_fails_the_loads_that_are_open() -> None:
    node = new_node()
    node.claim(10)
    load = load_of(claim(10))
    node.ask(load)

    effects = node.ask(stop_of(load))

    assert kinds(effects) == [PersistFence, ShutDownStage, Answer]
    assert load_reason(replies(effects)[2]) is LoadRefusalReason.STOPPED
    assert node.ready(load) == ()


def test_a_stop_of_what_is_not_here_is_answered_alike() -> None:
    node = new_node()
    node.claim(10)
    load = load_of(claim(10))

    effects = node.ask(stop_of(load))

    assert kinds(effects) == [PersistFence, Answer]
    assert replies(effects)[2] == StageStopped(load.stage)
    assert kinds(node.ask(stop_of(load))) == [Answer]


def test_a_stale_stop_is_refused_and_the_stage_goes_on() -> None:
    node = new_node()
    node.start(11)

    (answer,) = node.ask(stop_of(load_of(claim(10))))

    assert isinstance(answer, Answer)
    assert isinstance(answer.reply, StopFailed)
    assert answer.reply.refusal.text == "stale coordinator term 10 < 11"
    assert node.states == [StageState.READY]


def test_a_stop_reaches_a_load_that_waits() -> None:
    node = new_node()
    load = node.start(10)
    node.claim(11)
    newer = load_of(claim(11))
    node.ask(newer)
    waiting = node.count

    effects = node.ask(stop_of(newer))

    assert load_reason(replies(effects)[waiting]) is LoadRefusalReason.STOPPED
    assert replies(effects)[node.count] == StageStopped(newer.stage)
    assert StartStage(newer) not in node.end(load)


def test_a_stop_of_the_old_generation_spares_the_local_one_that_waits() -> None:
    node = new_node()
    old, new = local_load(), local_load(generation=2)
    node.ask(old, Origin.ADMIN)
    node.ask(new, Origin.ADMIN)

    node.ask(stop_of(old), Origin.ADMIN)

    assert StartStage(new) in node.end(old)


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
