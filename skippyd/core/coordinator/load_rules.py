"""The comparisons of a load, preparation or stop with what a node has accepted."""

from __future__ import annotations

from skippyd.core.coordinator.claim import CoordinatorClaim, is_storable
from skippyd.core.coordinator.memory import FenceRecord
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    LoadStage,
    Origin,
    StopStage,
)
from skippyd.core.coordinator.reasons import LoadRefusalReason, PrepareRefusalReason
from skippyd.ids import Term


def claim_mismatch(
    load: LoadStage, claim: CoordinatorClaim
) -> LoadRefusalReason | None:
    """Return the first way in which a load is not of the accepted claim.

    The order is skippy-facts 3.2; the hashes stand last.
    """
    epoch = claim.epoch
    if load.coordinator_term != claim.term:
        return LoadRefusalReason.TERM_MISMATCH
    if load.coordinator_id != epoch.coordinator_id:
        return LoadRefusalReason.COORDINATOR_MISMATCH
    if (load.stage.topology_id, load.stage.run_id) != (epoch.topology_id, epoch.run_id):
        return LoadRefusalReason.TOPOLOGY_RUN_MISMATCH
    if (load.participant_set_hash, load.topology_hash) != (
        epoch.participant_set_hash,
        epoch.topology_hash,
    ):
        return LoadRefusalReason.HASH_MISMATCH
    return None


def prepare_reason(
    load: LoadStage, record: FenceRecord, origin: Origin
) -> PrepareRefusalReason | None:
    """Return why a preparation may not start; the claim comes after it, if at all."""
    term = load.coordinator_term
    if not are_usable(load):
        return PrepareRefusalReason.UNUSABLE_FIELD
    if term <= 0:
        is_local = origin is Origin.ADMIN and not load.coordinator_id
        return None if is_local else PrepareRefusalReason.UNFENCED_FROM_NETWORK
    if term < record.term:
        return PrepareRefusalReason.STALE_TERM
    if term == record.term and not record.is_accepted(load.stage, term):
        return PrepareRefusalReason.CONFLICTING_SAME_TERM
    return None


def are_usable(request: LoadStage | StopStage | CancelPrepareStage) -> bool:
    """Say whether the fields that a node would keep are there, short and valid."""
    key, stage = request.key, request.stage
    fields = (
        key.model_id,
        key.package_ref,
        key.manifest_sha256,
        stage.topology_id,
        stage.run_id,
        stage.stage_id,
    )
    return all(field and is_storable(field) for field in fields)


def term_to_reach(
    stop: StopStage | CancelPrepareStage, record: FenceRecord, running: LoadStage | None
) -> Term:
    """Return the least term that a stop needs here, 0 when any will do.

    A local stop without a term is compared with the running stage only.
    """
    running_term = Term(0) if running is None else running.coordinator_term
    if stop.coordinator_term == 0:
        return running_term
    return max(record.term, running_term)


def is_old_generation(
    stop: StopStage | CancelPrepareStage, running: LoadStage | None
) -> bool:
    """Say whether a stop was meant for an earlier load of the running stage."""
    return (
        running is not None
        and running.coordinator_term == stop.coordinator_term
        and stop.shutdown_generation < running.shutdown_generation
    )
