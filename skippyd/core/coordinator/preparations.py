"""The preparations of one node: what it fetches ahead of loads that may come."""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.claim import ClaimKey, CoordinatorClaim
from skippyd.core.coordinator.control_effects import (
    CancelPreparation,
    PreparationMoved,
    StartPreparation,
)
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    LoadStage,
    PreparationState,
    PreparationStatus,
    StageKey,
)
from skippyd.core.coordinator.reasons import (
    SUPERSEDED_PREPARATION,
    PrepareRefusalReason,
)
from skippyd.core.coordinator.superseding import fenced_work


MAX_PREPARATIONS = 64
"""Preparations a node keeps at once."""

MAX_REMEMBERED_CANCELS = 256
"""Cancelled stages whose late PrepareStage is still refused, oldest forgotten first."""

_Slot = tuple[ClaimKey, StageKey]


@attrs.frozen(kw_only=True)
class _Preparation:
    load: LoadStage
    state: PreparationState = PreparationState.ASSIGNED
    error: str = ""

    @property
    def status(self) -> PreparationStatus:
        return PreparationStatus(
            stage=self.load.stage, state=self.state, error=self.error
        )


@attrs.define
class Preparations:
    """Preparations by stage; repeating a PrepareStage asks how far it is."""

    _open: dict[_Slot, _Preparation] = attrs.field(factory=dict, init=False)
    _cancelled: dict[_Slot, int] = attrs.field(factory=dict, init=False)

    def load_of(self, key: ClaimKey, stage: StageKey) -> LoadStage | None:
        """Return the load that is prepared for a stage, if any."""
        preparation = self._open.get((key, stage))
        return None if preparation is None else preparation.load

    def status_of(self, load: LoadStage) -> PreparationStatus | None:
        """Return how far exactly this preparation is, or None when it is not here."""
        preparation = self._open.get(_slot(load))
        if preparation is None or preparation.load != load:
            return None
        return preparation.status

    def refusal(self, load: LoadStage) -> PrepareRefusalReason | None:
        """Return why a preparation that is not here must not be started."""
        slot = _slot(load)
        known = self._open.get(slot)
        if load.shutdown_generation <= self._cancelled.get(slot, -1) or (
            known is not None
            and load.shutdown_generation <= known.load.shutdown_generation
        ):
            return PrepareRefusalReason.STALE_GENERATION
        if known is None and len(self._open) >= MAX_PREPARATIONS:
            return PrepareRefusalReason.TOO_MANY_PREPARATIONS
        return None

    def start(
        self, load: LoadStage
    ) -> tuple[CancelPreparation | StartPreparation, ...]:
        """Start a preparation in place of an older generation of the same stage."""
        replaced = self._open.pop(_slot(load), None)
        self._open[_slot(load)] = _Preparation(load=load)
        if replaced is None:
            return (StartPreparation(load),)
        reason = f"replaced by shutdown generation {load.shutdown_generation}"
        return CancelPreparation(replaced.load, reason), StartPreparation(load)

    def move(self, event: PreparationMoved) -> None:
        """Take over what the shell reports; reports about forgotten ones are late."""
        if self.status_of(event.load) is not None:
            self._open[_slot(event.load)] = _Preparation(
                load=event.load, state=event.state, error=event.error
            )

    def cancel(self, request: CancelPrepareStage) -> tuple[CancelPreparation, ...]:
        """Forget a preparation and refuse this generation of it from now on."""
        slot = (request.key, request.stage)
        generation = max(request.shutdown_generation, self._cancelled.pop(slot, 0))
        self._cancelled[slot] = generation
        if len(self._cancelled) > MAX_REMEMBERED_CANCELS:
            del self._cancelled[next(iter(self._cancelled))]
        known = self._open.pop(slot, None)
        if known is None:
            return ()
        return (CancelPreparation(known.load, "cancelled by its coordinator"),)

    def consume(self, load: LoadStage) -> None:
        """Forget the preparation of a stage that now starts: the stage holds its parts."""
        self._open.pop(_slot(load), None)

    def supersede(self, claim: CoordinatorClaim) -> tuple[CancelPreparation, ...]:
        """Forget what a newly accepted claim fences."""
        loads = [preparation.load for preparation in self._open.values()]
        ended = fenced_work(claim, loads)
        for load in ended:
            del self._open[_slot(load)]
        return tuple(CancelPreparation(load, SUPERSEDED_PREPARATION) for load in ended)


def _slot(load: LoadStage) -> _Slot:
    return load.key, load.stage
