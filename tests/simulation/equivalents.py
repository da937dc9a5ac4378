"""Changes that nothing can tell from the product, each with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from simulation.patching import Mutant, changed
from skippyd.core.coordinator import superseding as superseding_module
from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.stages import Stages


if TYPE_CHECKING:
    from skippyd.core.coordinator.claim import CoordinatorClaim
    from skippyd.core.coordinator.control_effects import ControlEffect
    from skippyd.core.coordinator.instant import Instant
    from skippyd.core.coordinator.memory import PersistFence
    from skippyd.core.coordinator.messages import LoadStage


_supersede = Stages.supersede
_accept = ClaimFence._accept


def _supersede_live_only(
    stages: Stages, claim: CoordinatorClaim
) -> tuple[tuple[ControlEffect, ...], tuple[ControlEffect, ...]]:
    pending = stages._pending.pop(claim.key, None)
    effects = _supersede(stages, claim)
    if pending is not None:
        stages._pending[claim.key] = pending
    return effects


def _is_fenced_by_run(claim: CoordinatorClaim, load: LoadStage) -> bool:
    is_own = (load.coordinator_term, load.stage.run_id) == (
        claim.term,
        claim.epoch.run_id,
    )
    return load.key == claim.key and load.coordinator_term <= claim.term and not is_own


def _accept_and_keep_all(
    fence: ClaimFence, claim: CoordinatorClaim, now: Instant
) -> tuple[PersistFence, ...]:
    before = fence._record(claim.key).tombstones
    effects = _accept(fence, claim, now)
    if not effects:
        return effects
    kept = attrs.evolve(fence._record(claim.key), tombstones=before)
    return fence._remember(kept)


EQUIVALENTS: tuple[tuple[Mutant, str], ...] = (
    (
        Mutant(
            "a waiting load is not dropped for a newer claim",
            changed(Stages, "supersede", _supersede_live_only),
        ),
        "it is checked again before it starts, and its term is refused then",
    ),
    (
        Mutant(
            "own work is told by its run alone, not by its topology too",
            changed(superseding_module, "_is_fenced", _is_fenced_by_run),
        ),
        "a load of another topology than the claim's is refused before it lives",
    ),
    (
        Mutant(
            "tombstones of older terms are kept for ever",
            changed(ClaimFence, "_accept", _accept_and_keep_all),
        ),
        "loads and claims of older terms are refused as stale; only the disk grows",
    ),
)
