"""Which work of a node a claim ends: everything of its model that is not its own run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.coordinator.claim import CoordinatorClaim
from skippyd.core.coordinator.messages import LoadStage


if TYPE_CHECKING:
    from collections.abc import Iterable


def fenced_work(
    claim: CoordinatorClaim, work: Iterable[LoadStage]
) -> tuple[LoadStage, ...]:
    """Return the loads, running or prepared, that an accepted claim must end.

    Those of the same model artifact at an older term, unfenced ones (term 0)
    included, and what another run prepared at the same term before it was claimed.
    Preparations at a newer term stay: their claim is yet to come. The order is that
    of term, run and stage, so that equal work gives equal effects.
    """
    ended = (load for load in work if _is_fenced(claim, load))
    return tuple(
        sorted(
            ended,
            key=lambda load: (
                load.coordinator_term,
                load.stage.run_id,
                load.stage.stage_id,
            ),
        )
    )


def _is_fenced(claim: CoordinatorClaim, load: LoadStage) -> bool:
    if load.key != claim.key or load.coordinator_term > claim.term:
        return False
    is_own = (
        load.coordinator_term == claim.term
        and load.stage.run_id == claim.epoch.run_id
        and load.stage.topology_id == claim.epoch.topology_id
    )
    return not is_own
