"""What one node does with control messages: the stage side of coordination.

Theory of operation. The shell feeds one event after another to `offer` and performs
the effects it returns in their order; `PersistFence` must be durable before the next
effect is begun, the others only need to be begun. A model artifact has at most one
live stage here (I7): STARTING, READY, or STOPPING until the shell reports its end.

    Received(claim) -> PersistFence, ShutDownStage..., CancelPreparation..., Answer

While older work of the model has not ended the claim is stored but not answered (I3):
the answer leaves with its `StageEnded`, or says "fencing in progress" at the deadline.
A load that must wait for memory stands by and is checked again before it starts;
every load is checked again before its stage is called ready (I14). The shell bounds
the number of open requests, and answers none by itself.
"""

from __future__ import annotations

from typing import assert_never

import attrs

from skippyd.core.coordinator.claim import ClaimKey, CoordinatorClaim
from skippyd.core.coordinator.control_effects import (
    Answer,
    ControlEffect,
    ControlEvent,
    PreparationMoved,
    Received,
    StageBecameReady,
    StageEnded,
    StartStage,
    TimePassed,
)
from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimAnswer,
    ClaimCoordinator,
    LoadStage,
    PreparationState,
    PreparationStatus,
    PrepareFailed,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    StopFailed,
    StopStage,
)
from skippyd.core.coordinator.preparations import Preparations
from skippyd.core.coordinator.stages import LiveStage, Stages
from skippyd.core.coordinator.verdict import (
    Accepted,
    ClaimVerdict,
    FencingInProgress,
    PrepareRefused,
    Rejected,
    Superseded,
)


FENCING_ANSWER_MS = 5_000
"""How long a claim waits for older work to end before it is told to ask again."""


@attrs.frozen(kw_only=True)
class _WaitingClaim:
    request_id: int
    verdict: Accepted | Superseded
    deadline_boottime_ms: int


@attrs.define
class StageControl:
    """The stage side of one node; see the module docstring."""

    _fence: ClaimFence
    _stages: Stages = attrs.field(init=False)
    _waiting_claims: list[_WaitingClaim] = attrs.field(factory=list, init=False)
    _preparations: Preparations = attrs.field(factory=Preparations, init=False)

    def __attrs_post_init__(self) -> None:
        self._stages = Stages(self._fence)

    @property
    def fence(self) -> ClaimFence:
        """The claim memory, for status and for lifting a quarantine."""
        return self._fence

    def snapshot(self) -> tuple[LiveStage, ...]:
        """Return every live stage, sorted by model artifact."""
        return self._stages.snapshot()

    def next_deadline(self) -> int | None:
        """When `TimePassed` is to be offered, in boottime milliseconds."""
        deadlines = [waiting.deadline_boottime_ms for waiting in self._waiting_claims]
        if (quarantine_end := self._fence.next_deadline()) is not None:
            deadlines.append(quarantine_end)
        return min(deadlines, default=None)

    def offer(self, event: ControlEvent, now: Instant) -> tuple[ControlEffect, ...]:
        """Take one event in; return what must be done, in order."""
        effects = self._take(event, now)
        for effect in effects:
            if isinstance(effect, StartStage):
                self._preparations.consume(effect.load)
        return effects

    def _take(self, event: ControlEvent, now: Instant) -> tuple[ControlEffect, ...]:
        match event:
            case Received():
                return self._receive(event, now)
            case StageBecameReady():
                return self._stages.become_ready(event, now)
            case StageEnded():
                return self._end(event, now)
            case PreparationMoved():
                self._preparations.move(event)
                return ()
            case TimePassed():
                return (*self._fence.expire(now), *self._give_up_waiting(now))
            case _:
                assert_never(event)

    def _receive(self, event: Received, now: Instant) -> tuple[ControlEffect, ...]:
        match event.request:
            case ProbeClaim(claim):
                return (Answer(event.request_id, self._probe(claim, now)),)
            case ClaimCoordinator(claim):
                return self._claim(event.request_id, claim, now)
            case PrepareStage(load):
                return self._prepare(event, load)
            case CancelPrepareStage() as cancel:
                return self._cancel(event, cancel, now)
            case LoadStage() as load:
                return self._stages.load(event.request_id, load, event.origin, now)
            case StopStage() as stop:
                return self._stages.stop(event.request_id, stop, event.origin, now)
            case _:
                assert_never(event.request)

    def _probe(self, claim: CoordinatorClaim, now: Instant) -> ProbeAnswer:
        verdict = self._fence.probe(claim, now)
        is_refused = isinstance(verdict, Rejected)
        return ProbeAnswer(
            verdict=verdict,
            fenced_runs=() if is_refused else self._stages.fenced_runs(claim, now),
            instance_id=self._fence.instance_id,
        )

    def _claim(
        self, request_id: int, claim: CoordinatorClaim, now: Instant
    ) -> tuple[ControlEffect, ...]:
        verdict, persist = self._fence.offer(claim, now)
        if isinstance(verdict, Rejected):
            return (self._claim_answer(request_id, verdict),)
        stages, failed_loads = self._stages.supersede(claim)
        preparations = self._preparations.supersede(claim)
        effects: tuple[ControlEffect, ...] = (
            *persist,
            *stages,
            *preparations,
            *failed_loads,
        )
        if not self._stages.is_fencing(claim):
            return (*effects, self._claim_answer(request_id, verdict))
        waiting = _WaitingClaim(
            request_id=request_id,
            verdict=verdict,
            deadline_boottime_ms=now.boottime_ms + FENCING_ANSWER_MS,
        )
        self._waiting_claims.append(waiting)
        return effects

    def _prepare(self, event: Received, load: LoadStage) -> tuple[ControlEffect, ...]:
        verdict = self._fence.check_prepare(load, event.origin)
        if isinstance(verdict, PrepareRefused):
            return (_prepare_failed(event.request_id, load, verdict),)
        if (status := self._preparations.status_of(load)) is not None:
            return (Answer(event.request_id, status),)
        if (reason := self._preparations.refusal(load)) is not None:
            refused = self._fence.prepare_refusal(load, reason)
            return (_prepare_failed(event.request_id, load, refused),)
        started = self._preparations.start(load)
        status = PreparationStatus(stage=load.stage, state=PreparationState.ASSIGNED)
        return (*started, Answer(event.request_id, status))

    def _cancel(
        self, event: Received, cancel: CancelPrepareStage, now: Instant
    ) -> tuple[ControlEffect, ...]:
        prepared = self._preparations.load_of(cancel.key, cancel.stage)
        refused = self._fence.check_cancel(cancel, prepared, event.origin, now)
        if refused is not None:
            failed = StopFailed(stage=cancel.stage, refusal=refused)
            return (Answer(event.request_id, failed),)
        status = PreparationStatus(stage=cancel.stage, state=PreparationState.CANCELLED)
        return (*self._preparations.cancel(cancel), Answer(event.request_id, status))

    def _end(self, event: StageEnded, now: Instant) -> tuple[ControlEffect, ...]:
        key = event.load.key
        return (
            *self._stages.end(event),
            *self._answer_waiting_claims(key, now),
            *self._stages.start_pending(key, now),
        )

    def _answer_waiting_claims(
        self, key: ClaimKey, now: Instant
    ) -> tuple[ControlEffect, ...]:
        # Late news of another process must not free a claim whose old work goes on.
        answered = [
            waiting
            for waiting in self._waiting_claims
            if waiting.verdict.claim.key == key
            and not self._stages.is_fencing(waiting.verdict.claim)
        ]
        self._waiting_claims = [w for w in self._waiting_claims if w not in answered]
        effects: list[ControlEffect] = []
        for waiting in answered:
            # A newer claim may have come meanwhile: then this one has lost.
            current = self._fence.probe(waiting.verdict.claim, now)
            verdict = current if isinstance(current, Rejected) else waiting.verdict
            effects.append(self._claim_answer(waiting.request_id, verdict))
        return tuple(effects)

    def _give_up_waiting(self, now: Instant) -> tuple[ControlEffect, ...]:
        late = [
            waiting
            for waiting in self._waiting_claims
            if waiting.deadline_boottime_ms <= now.boottime_ms
        ]
        self._waiting_claims = [w for w in self._waiting_claims if w not in late]
        return tuple(
            self._claim_answer(w.request_id, FencingInProgress(w.verdict.claim))
            for w in late
        )

    def _claim_answer(self, request_id: int, verdict: ClaimVerdict) -> Answer:
        answer = ClaimAnswer(verdict=verdict, instance_id=self._fence.instance_id)
        return Answer(request_id, answer)


def _prepare_failed(
    request_id: int, load: LoadStage, refused: PrepareRefused
) -> Answer:
    return Answer(request_id, PrepareFailed(stage=load.stage, refusal=refused))
