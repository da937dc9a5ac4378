"""Rules of the stage side, each switched off: what lives, what waits, what ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from simulation.patching import Change, Mutant, changed
from skippyd.core.coordinator import preparations as preparations_module
from skippyd.core.coordinator import stages as stages_module
from skippyd.core.coordinator import superseding as superseding_module
from skippyd.core.coordinator.control import StageControl
from skippyd.core.coordinator.control_effects import (
    ControlEffect,
    StageBecameReady,
    StageEnded,
    StartStage,
)
from skippyd.core.coordinator.preparations import Preparations
from skippyd.core.coordinator.stages import Stages
from skippyd.core.coordinator.verdict import FencedRun, LoadAllowed, LoadVerdict


if TYPE_CHECKING:
    from skippyd.core.coordinator.claim import ClaimKey, CoordinatorClaim
    from skippyd.core.coordinator.fence import ClaimFence
    from skippyd.core.coordinator.instant import Instant
    from skippyd.core.coordinator.messages import (
        LoadStage,
        Origin,
        PreparationStatus,
        StopStage,
    )


_become_ready = Stages.become_ready
_start_pending = Stages.start_pending
_end = Stages.end
_load = Stages.load
_claim = StageControl._claim


@attrs.define
class _Permissive:
    """A fence that has nothing against any load."""

    real: ClaimFence

    def check_load(self, load: LoadStage, origin: Origin, now: Instant) -> LoadVerdict:
        return LoadAllowed(is_fenced=True)


def _ready_unchecked(
    stages: Stages, event: StageBecameReady, now: Instant
) -> tuple[ControlEffect, ...]:
    real = stages._fence
    stages._fence = _Permissive(real)  # type: ignore[assignment]
    effects = _become_ready(stages, event, now)
    stages._fence = real
    return effects


def _pending_unchecked(
    stages: Stages, key: ClaimKey, now: Instant
) -> tuple[ControlEffect, ...]:
    real = stages._fence
    stages._fence = _Permissive(real)  # type: ignore[assignment]
    effects = _start_pending(stages, key, now)
    stages._fence = real
    return effects


def _load_at_once(
    stages: Stages, request_id: int, load: LoadStage, origin: Origin, now: Instant
) -> tuple[ControlEffect, ...]:
    stage = stages._live.pop(load.key, None)
    effects = _load(stages, request_id, load, origin, now)
    if stage is not None and not any(isinstance(e, StartStage) for e in effects):
        stages._live[load.key] = stage
    return effects


def _probe_names_nothing(
    stages: Stages, claim: CoordinatorClaim, now: Instant
) -> tuple[FencedRun, ...]:
    return ()


def _is_fenced_by_term(claim: CoordinatorClaim, load: LoadStage) -> bool:
    return load.key == claim.key and 0 < load.coordinator_term < claim.term


def _is_fenced_whatever(claim: CoordinatorClaim, load: LoadStage) -> bool:
    return load.key == claim.key


def _is_same_stage(stop: StopStage, load: LoadStage) -> bool:
    return stop.stage == load.stage


def _fence_nothing() -> tuple[Change, ...]:
    return tuple(
        (module, "fenced_work", lambda *_: ())
        for module in (stages_module, preparations_module)
    )


def _answer_waiting_unchecked(
    control: StageControl, key: ClaimKey, now: Instant
) -> tuple[ControlEffect, ...]:
    waiting = [w for w in control._waiting_claims if w.verdict.claim.key == key]
    control._waiting_claims = [w for w in control._waiting_claims if w not in waiting]
    return tuple(control._claim_answer(w.request_id, w.verdict) for w in waiting)


def _accept_at_once(
    control: StageControl, request_id: int, claim: CoordinatorClaim, now: Instant
) -> tuple[ControlEffect, ...]:
    effects = _claim(control, request_id, claim, now)
    waiting = control._waiting_claims
    if not waiting or waiting[-1].request_id != request_id:
        return effects
    verdict = waiting.pop().verdict
    return (*effects, control._claim_answer(request_id, verdict))


def _end_without_answers(
    stages: Stages, event: StageEnded
) -> tuple[ControlEffect, ...]:
    _end(stages, event)
    return ()


def _start_again(
    preparations: Preparations, load: LoadStage
) -> PreparationStatus | None:
    return None


STAGE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a stage is checked again when ready",
        changed(Stages, "become_ready", _ready_unchecked),
    ),
    Mutant(
        "a waiting load is checked again",
        changed(Stages, "start_pending", _pending_unchecked),
    ),
    Mutant("one stage of a model at a time", changed(Stages, "load", _load_at_once)),
    Mutant(
        "a probe names what would end",
        changed(Stages, "fenced_runs", _probe_names_nothing),
    ),
    Mutant("a claim ends older work", _fence_nothing),
    Mutant(
        "a claim ends unfenced work",
        changed(superseding_module, "_is_fenced", _is_fenced_by_term),
    ),
    Mutant(
        "a claim spares its own work",
        changed(superseding_module, "_is_fenced", _is_fenced_whatever),
    ),
    Mutant(
        "an accept waits for older work",
        changed(StageControl, "_claim", _accept_at_once),
    ),
    Mutant(
        "a waiting claim may have lost",
        changed(StageControl, "_answer_waiting_claims", _answer_waiting_unchecked),
    ),
    Mutant(
        "a stop is for the run, not for the stage's name",
        changed(stages_module, "_is_same_run", _is_same_stage),
    ),
    Mutant(
        "a waiting claim is told in time",
        changed(StageControl, "_give_up_waiting", lambda *_: ()),
    ),
    Mutant(
        "a stop reaches a waiting load",
        changed(stages_module, "_is_meant", lambda *_: False),
    ),
    Mutant(
        "who waits for an end is told", changed(Stages, "end", _end_without_answers)
    ),
    Mutant(
        "a cancelled preparation stays cancelled",
        changed(Preparations, "refusal", lambda *_: None),
    ),
    Mutant(
        "a preparation starts once", changed(Preparations, "status_of", _start_again)
    ),
    Mutant(
        "a claim ends older preparations",
        changed(Preparations, "supersede", lambda *_: ()),
    ),
)
