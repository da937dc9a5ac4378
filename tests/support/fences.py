"""Fences with a past, and what they refuse, for tests of the coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.memory import (
    FenceSnapshot,
)
from skippyd.core.coordinator.messages import LoadStage, Origin
from skippyd.core.coordinator.verdict import (
    Accepted,
    LoadRefused,
    Rejected,
    StopRefused,
    Superseded,
)
from skippyd.ids import UnixMs
from support.claims import stop_of


if TYPE_CHECKING:
    from skippyd.core.coordinator.claim import CoordinatorClaim
    from skippyd.core.coordinator.reasons import (
        LoadRefusalReason,
        RejectReason,
        StopRefusalReason,
    )


NOW = Instant(UnixMs(1_000), 50_000)
NETWORK, ADMIN = Origin.NETWORK, Origin.ADMIN


def fence_with(*claims: CoordinatorClaim, now: Instant = NOW) -> ClaimFence:
    fence = ClaimFence.restore(FenceSnapshot(instance_id="store"), now)
    for offered in claims:
        verdict, _ = fence.offer(offered, now)
        assert isinstance(verdict, Accepted | Superseded)
    return fence


def restarted(fence: ClaimFence, now: Instant = NOW) -> ClaimFence:
    return ClaimFence.restore(fence.snapshot(), now)


def reject_reason(fence: ClaimFence, offered: CoordinatorClaim) -> RejectReason:
    verdict, persist = fence.offer(offered, NOW)
    assert isinstance(verdict, Rejected)
    assert persist == ()
    assert verdict.claim == offered
    return verdict.reason


def load_reason(
    fence: ClaimFence, load: LoadStage, origin: Origin = NETWORK, now: Instant = NOW
) -> LoadRefusalReason | None:
    verdict = fence.check_load(load, origin, now)
    return verdict.reason if isinstance(verdict, LoadRefused) else None


def stop_reason(
    fence: ClaimFence,
    load: LoadStage,
    running: LoadStage | None = None,
    origin: Origin = NETWORK,
    generation: int | None = None,
) -> StopRefusalReason | None:
    stop = stop_of(load, generation=generation)
    verdict = fence.check_stop(stop, running, origin, NOW)
    return verdict.reason if isinstance(verdict, StopRefused) else None
