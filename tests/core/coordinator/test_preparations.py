"""What a node fetches ahead."""

from __future__ import annotations

from skippyd.core.coordinator.control_effects import (
    CancelPreparation,
    PreparationMoved,
    StartPreparation,
)
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    LoadStage,
    PreparationState,
)
from skippyd.core.coordinator.preparations import (
    MAX_PREPARATIONS,
    MAX_REMEMBERED_CANCELS,
    Preparations,
)
from skippyd.core.coordinator.reasons import PrepareRefusalReason
from support.claims import claim, load_of


def cancel_of(load: LoadStage, generation: int) -> CancelPrepareStage:
    return CancelPrepareStage(
        key=load.key,
        stage=load.stage,
        coordinator_term=load.coordinator_term,
        shutdown_generation=generation,
    )


def state_of(preparations: Preparations, load: LoadStage) -> PreparationState | None:
    status = preparations.status_of(load)
    return None if status is None else status.state


def test_a_preparation_starts_moves_and_is_consumed() -> None:
    preparations, load = Preparations(), load_of(claim())

    assert preparations.refusal(load) is None
    assert preparations.start(load) == (StartPreparation(load),)
    assert state_of(preparations, load) is PreparationState.ASSIGNED
    preparations.move(
        PreparationMoved(load=load, state=PreparationState.FAILED, error="no space")
    )
    status = preparations.status_of(load)
    assert status is not None
    assert (status.state, status.error) == (PreparationState.FAILED, "no space")
    preparations.consume(load)
    assert state_of(preparations, load) is None


def test_reports_about_a_forgotten_preparation_are_late() -> None:
    preparations, load = Preparations(), load_of(claim())
    newer = load_of(claim(), generation=2)
    preparations.start(newer)

    preparations.move(PreparationMoved(load=load, state=PreparationState.FAILED))

    assert state_of(preparations, load) is None
    assert state_of(preparations, newer) is PreparationState.ASSIGNED


def test_a_newer_generation_replaces_an_older_one_and_never_the_reverse() -> None:
    preparations, load = Preparations(), load_of(claim())
    newer = load_of(claim(), generation=2)
    preparations.start(load)

    assert preparations.refusal(newer) is None
    dropped, started = preparations.start(newer)

    assert dropped == CancelPreparation(load, "replaced by shutdown generation 2")
    assert started == StartPreparation(newer)
    assert preparations.refusal(load) is PrepareRefusalReason.STALE_GENERATION


def test_a_cancelled_generation_does_not_come_back() -> None:
    preparations, load = Preparations(), load_of(claim(), generation=2)
    preparations.start(load)

    assert preparations.cancel(cancel_of(load, 2)) == (
        CancelPreparation(load, "cancelled by its coordinator"),
    )
    assert preparations.cancel(cancel_of(load, 1)) == ()
    assert preparations.refusal(load) is PrepareRefusalReason.STALE_GENERATION
    assert preparations.refusal(load_of(claim(), generation=3)) is None


def test_only_so_many_cancels_are_remembered() -> None:
    preparations = Preparations()
    loads = [load_of(claim(1 + n)) for n in range(MAX_REMEMBERED_CANCELS + 1)]
    for load in loads:
        preparations.cancel(cancel_of(load, 1))

    assert preparations.refusal(loads[0]) is None
    assert preparations.refusal(loads[1]) is PrepareRefusalReason.STALE_GENERATION


def test_only_so_many_preparations_are_kept() -> None:
    preparations = Preparations()
    loads = [load_of(claim(1 + n)) for n in range(MAX_PREPARATIONS + 1)]
    for load in loads[:-1]:
        preparations.start(load)
    newer = load_of(claim(1), generation=2)

    assert preparations.refusal(loads[-1]) is PrepareRefusalReason.TOO_MANY_PREPARATIONS
    assert preparations.refusal(newer) is None


def test_a_newer_claim_drops_older_preparations_and_keeps_its_own() -> None:
    preparations = Preparations()
    older, own = load_of(claim(10)), load_of(claim(11))
    preparations.start(older)
    preparations.start(own)

    assert preparations.load_of(own.key, own.stage) == own
    assert preparations.supersede(claim(11)) == (
        CancelPreparation(older, "superseded by newer coordinator term"),
    )
    assert preparations.load_of(older.key, older.stage) is None
    assert state_of(preparations, own) is PreparationState.ASSIGNED
