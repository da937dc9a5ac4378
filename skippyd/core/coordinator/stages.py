"""The live stages of one node and the loads that wait for their memory.

A model artifact has at most one live stage here (I7). It is STARTING until the shell
reports it ready *and* the fence still agrees (I14), and STOPPING from the moment an
end was asked for until the shell reports that its process is reaped.
"""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.claim import ClaimKey, CoordinatorClaim
from skippyd.core.coordinator.control_effects import (
    Answer,
    ControlEffect,
    ShutDownStage,
    StageBecameReady,
    StageEnded,
    StartStage,
)
from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import (
    LoadFailed,
    LoadStage,
    Origin,
    StageReady,
    StageState,
    StageStatus,
    StageStopped,
    StopFailed,
    StopStage,
)
from skippyd.core.coordinator.reasons import LoadRefusalReason
from skippyd.core.coordinator.superseding import fenced_work
from skippyd.core.coordinator.verdict import FencedRun, LoadRefused, StopRefused


@attrs.frozen(kw_only=True)
class LiveStage:
    """A stage whose process exists, as status shows it."""

    load: LoadStage
    state: StageState
    status: StageStatus | None


@attrs.define(kw_only=True)
class _PendingLoad:
    """A load that may start when the memory of an older stage is free."""

    load: LoadStage
    origin: Origin
    load_requests: list[int]


@attrs.define(kw_only=True)
class _Stage:
    load: LoadStage
    origin: Origin
    load_requests: list[int]
    stop_requests: list[int] = attrs.Factory(list)
    status: StageStatus | None = None
    is_stopping: bool = False

    @property
    def state(self) -> StageState:
        if self.is_stopping:
            return StageState.STOPPING
        return StageState.STARTING if self.status is None else StageState.READY


@attrs.define
class Stages:
    """Live stages by model artifact; every question goes to the node's fence."""

    _fence: ClaimFence
    _live: dict[ClaimKey, _Stage] = attrs.field(factory=dict, init=False)
    _pending: dict[ClaimKey, _PendingLoad] = attrs.field(factory=dict, init=False)

    def snapshot(self) -> tuple[LiveStage, ...]:
        """Return every live stage, sorted by model artifact."""
        return tuple(
            LiveStage(load=stage.load, state=stage.state, status=stage.status)
            for _, stage in sorted(
                self._live.items(), key=lambda item: attrs.astuple(item[0])
            )
        )

    def fenced_runs(
        self, claim: CoordinatorClaim, now: Instant
    ) -> tuple[FencedRun, ...]:
        """Return the runs with live work here that accepting a claim would end."""
        stage = self._live.get(claim.key)
        if stage is None or not fenced_work(claim, [stage.load]):
            return ()
        run = FencedRun(
            run_id=stage.load.stage.run_id,
            coordinator_id=stage.load.coordinator_id,
            term=stage.load.coordinator_term,
            is_serving=stage.state is StageState.READY,
            is_lease_held=self._fence.is_lease_held(claim.key, now),
        )
        return (run,)

    def is_fencing(self, claim: CoordinatorClaim) -> bool:
        """Say whether work that an accepted claim ends is still live here."""
        stage = self._live.get(claim.key)
        return stage is not None and bool(fenced_work(claim, [stage.load]))

    def supersede(
        self, claim: CoordinatorClaim
    ) -> tuple[tuple[ShutDownStage, ...], tuple[Answer, ...]]:
        """Begin to end what a newly accepted claim fences, and fail its open loads."""
        shut_down: tuple[ShutDownStage, ...] = ()
        answers: tuple[Answer, ...] = ()
        if self.is_fencing(claim):
            shut_down, answers = self._shut_down(
                self._live[claim.key], LoadRefusalReason.SUPERSEDED
            )
        pending = self._pending.get(claim.key)
        if pending is not None and fenced_work(claim, [pending.load]):
            answers += self._drop_pending(pending, LoadRefusalReason.SUPERSEDED)
        return shut_down, answers

    def load(
        self, request_id: int, load: LoadStage, origin: Origin, now: Instant
    ) -> tuple[ControlEffect, ...]:
        """Start a stage, join a start that is under way, or refuse."""
        verdict = self._fence.check_load(load, origin, now)
        if isinstance(verdict, LoadRefused):
            return (_load_failed(request_id, load, verdict),)
        stage = self._live.get(load.key)
        if stage is None:
            return self._start(
                _PendingLoad(load=load, origin=origin, load_requests=[request_id])
            )
        if stage.is_stopping:
            return self._wait(request_id, load, origin)
        if stage.load == load:
            return self._join(stage, request_id)
        if stage.load.stage != load.stage:
            return self._refuse(request_id, load, LoadRefusalReason.OTHER_STAGE_LIVE)
        if load.shutdown_generation <= stage.load.shutdown_generation:
            return self._refuse(request_id, load, LoadRefusalReason.STALE_GENERATION)
        shut_down, failed = self._shut_down(stage, LoadRefusalReason.STOPPED)
        return (*shut_down, *failed, *self._wait(request_id, load, origin))

    def stop(
        self, request_id: int, stop: StopStage, origin: Origin, now: Instant
    ) -> tuple[ControlEffect, ...]:
        """Stop a run here for good; a stop of an unknown one is answered alike (I6).

        A node has one stage of a run, so the run is what counts, not the stage's name.
        """
        stage = self._live.get(stop.key)
        running = stage.load if stage and _is_same_run(stop, stage.load) else None
        verdict = self._fence.check_stop(stop, running, origin, now)
        if isinstance(verdict, StopRefused):
            return (Answer(request_id, StopFailed(stage=stop.stage, refusal=verdict)),)
        effects: tuple[ControlEffect, ...] = ()
        if verdict.leaves_tombstone:
            effects = self._fence.bury(stop)
        pending = self._pending.get(stop.key)
        if pending is not None and _is_meant(stop, pending.load):
            effects += self._drop_pending(pending, LoadRefusalReason.STOPPED)
        if stage is None or not verdict.ends_stage:
            return (*effects, Answer(request_id, StageStopped(stop.stage)))
        stage.stop_requests.append(request_id)
        shut_down, failed = self._shut_down(stage, LoadRefusalReason.STOPPED)
        return (*effects, *shut_down, *failed)

    def become_ready(
        self, event: StageBecameReady, now: Instant
    ) -> tuple[ControlEffect, ...]:
        """Call a stage ready if its load would still be allowed at this moment (I14)."""
        stage = self._live.get(event.load.key)
        if (
            stage is None
            or stage.load != event.load
            or stage.state is not StageState.STARTING
        ):
            return ()
        verdict = self._fence.check_load(stage.load, stage.origin, now)
        if isinstance(verdict, LoadRefused):
            shut_down, failed = self._shut_down(stage, verdict.reason)
            return (*shut_down, *failed)
        stage.status = event.status
        requests, stage.load_requests = stage.load_requests, []
        return tuple(Answer(number, StageReady(event.status)) for number in requests)

    def end(self, event: StageEnded) -> tuple[ControlEffect, ...]:
        """Forget a stage whose memory is free; answer whoever waited for that."""
        stage = self._live.get(event.load.key)
        if stage is None or stage.load != event.load:
            return ()
        del self._live[event.load.key]
        refusal = self._fence.load_refusal(
            stage.load, LoadRefusalReason.START_FAILED, event.detail
        )
        failed = (_load_failed(n, stage.load, refusal) for n in stage.load_requests)
        stopped = (
            Answer(n, StageStopped(stage.load.stage)) for n in stage.stop_requests
        )
        return (*failed, *stopped)

    def start_pending(self, key: ClaimKey, now: Instant) -> tuple[ControlEffect, ...]:
        """Start what waited for the memory of a model's stage, if still allowed."""
        pending = self._pending.get(key)
        if pending is None or key in self._live:
            return ()
        verdict = self._fence.check_load(pending.load, pending.origin, now)
        if isinstance(verdict, LoadRefused):
            return self._drop_pending(pending, verdict.reason)
        del self._pending[key]
        return self._start(pending)

    def _start(self, pending: _PendingLoad) -> tuple[ControlEffect, ...]:
        self._live[pending.load.key] = _Stage(
            load=pending.load,
            origin=pending.origin,
            load_requests=pending.load_requests,
        )
        return (StartStage(pending.load),)

    def _join(self, stage: _Stage, request_id: int) -> tuple[ControlEffect, ...]:
        if stage.status is None:
            stage.load_requests.append(request_id)
            return ()
        return (Answer(request_id, StageReady(stage.status)),)

    def _wait(
        self, request_id: int, load: LoadStage, origin: Origin
    ) -> tuple[ControlEffect, ...]:
        pending = self._pending.get(load.key)
        if pending is None:
            self._pending[load.key] = _PendingLoad(
                load=load, origin=origin, load_requests=[request_id]
            )
            return ()
        if pending.load != load:
            return self._refuse(request_id, load, LoadRefusalReason.OTHER_STAGE_LIVE)
        pending.load_requests.append(request_id)
        return ()

    def _shut_down(
        self, stage: _Stage, reason: LoadRefusalReason
    ) -> tuple[tuple[ShutDownStage, ...], tuple[Answer, ...]]:
        refusal = self._fence.load_refusal(stage.load, reason)
        requests, stage.load_requests = stage.load_requests, []
        failed = tuple(_load_failed(n, stage.load, refusal) for n in requests)
        if stage.is_stopping:
            return (), failed
        stage.is_stopping = True
        return (ShutDownStage(stage.load, refusal.text),), failed

    def _drop_pending(
        self, pending: _PendingLoad, reason: LoadRefusalReason
    ) -> tuple[Answer, ...]:
        del self._pending[pending.load.key]
        refusal = self._fence.load_refusal(pending.load, reason)
        return tuple(
            _load_failed(n, pending.load, refusal) for n in pending.load_requests
        )

    def _refuse(
        self, request_id: int, load: LoadStage, reason: LoadRefusalReason
    ) -> tuple[ControlEffect, ...]:
        refusal = self._fence.load_refusal(load, reason)
        return (_load_failed(request_id, load, refusal),)


def _load_failed(request_id: int, load: LoadStage, refusal: LoadRefused) -> Answer:
    return Answer(request_id, LoadFailed(stage=load.stage, refusal=refusal))


def _is_same_run(stop: StopStage, load: LoadStage) -> bool:
    return (stop.stage.topology_id, stop.stage.run_id) == (
        load.stage.topology_id,
        load.stage.run_id,
    )


def _is_meant(stop: StopStage, load: LoadStage) -> bool:
    return (
        _is_same_run(stop, load)
        and stop.coordinator_term == load.coordinator_term
        and stop.shutdown_generation >= load.shutdown_generation
    )
