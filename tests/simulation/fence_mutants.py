"""Rules of the fence and its memory, each switched off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from simulation.patching import Mutant, changed, without_reason
from skippyd.core.coordinator import fence as fence_module
from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.memory import (
    FenceRecord,
    FenceSnapshot,
    Lease,
    PersistFence,
)
from skippyd.core.coordinator.reasons import (
    LoadRefusalReason,
    PrepareRefusalReason,
    RejectReason,
    StopRefusalReason,
)
from skippyd.core.coordinator.verdict import (
    ProbeVerdict,
    Rejected,
    StopAllowed,
    StopVerdict,
)


if TYPE_CHECKING:
    from skippyd.core.coordinator.claim import ClaimKey, CoordinatorClaim
    from skippyd.core.coordinator.instant import Instant
    from skippyd.core.coordinator.messages import LoadStage, Origin, StopStage


def _claim_rule(reason: RejectReason) -> Mutant:
    changes = without_reason(ClaimFence, "_reject_reason", reason)
    return Mutant(f"claim: {reason.value}", changes)


def _load_rule(reason: LoadRefusalReason) -> Mutant:
    changes = without_reason(ClaimFence, "_load_reason", reason)
    return Mutant(f"load: {reason.value}", changes)


def _stop_rule(reason: StopRefusalReason) -> Mutant:
    changes = without_reason(ClaimFence, "_stop_reason", reason)
    return Mutant(f"stop: {reason.value}", changes)


def _prepare_rule(reason: PrepareRefusalReason) -> Mutant:
    changes = without_reason(fence_module, "prepare_reason", reason)
    return Mutant(f"prepare: {reason.value}", changes)


def _unfenced_rule(reason: LoadRefusalReason) -> Mutant:
    changes = without_reason(ClaimFence, "_unfenced_load_reason", reason)
    return Mutant(f"load: {reason.value}", changes)


_accept = ClaimFence._accept
_offer = ClaimFence.offer
_probe = ClaimFence.probe
_bury = ClaimFence.bury
_check_stop = ClaimFence.check_stop
_restore = ClaimFence.restore


def _uncapped(_cls: type[Lease], claim: CoordinatorClaim, now: Instant) -> Lease:
    length_ms = claim.lease_until_unix_ms - now.unix_ms
    return Lease(
        until_unix_ms=claim.lease_until_unix_ms,
        deadline_boottime_ms=now.boottime_ms + length_ms,
    )


def _held_by_wall(lease: Lease, now: Instant) -> bool:
    return now.unix_ms < lease.until_unix_ms


def _held_by_boottime(lease: Lease, now: Instant) -> bool:
    return now.boottime_ms < lease.deadline_boottime_ms


def _held_to_the_end(lease: Lease, now: Instant) -> bool:
    return (
        now.boottime_ms <= lease.deadline_boottime_ms
        and now.unix_ms <= lease.until_unix_ms
    )


def _the_last(held: Lease, fresh: Lease) -> Lease:
    return fresh


def _the_first(held: Lease, fresh: Lease) -> Lease:
    return held


def _accept_and_forget_stops(
    fence: ClaimFence, claim: CoordinatorClaim, now: Instant
) -> tuple[PersistFence, ...]:
    if claim.term <= fence._record(claim.key).term:
        return _accept(fence, claim, now)
    fence._leases[claim.key] = Lease.received(claim, now)
    return fence._remember(FenceRecord(key=claim.key, claim=claim))


def _offer_unwritten(
    fence: ClaimFence, claim: CoordinatorClaim, now: Instant
) -> tuple[ProbeVerdict, tuple[PersistFence, ...]]:
    verdict, _ = _offer(fence, claim, now)
    return verdict, ()


def _bury_unwritten(fence: ClaimFence, stop: StopStage) -> tuple[PersistFence, ...]:
    _bury(fence, stop)
    return ()


def _bury_nothing(fence: ClaimFence, stop: StopStage) -> tuple[PersistFence, ...]:
    return ()


def _stop_whatever_runs(
    fence: ClaimFence,
    stop: StopStage,
    running: LoadStage | None,
    origin: Origin,
    now: Instant,
) -> StopVerdict:
    verdict = _check_stop(fence, stop, running, origin, now)
    if isinstance(verdict, StopAllowed):
        return attrs.evolve(verdict, ends_stage=running is not None)
    return verdict


def _stop_nothing(
    fence: ClaimFence,
    stop: StopStage,
    running: LoadStage | None,
    origin: Origin,
    now: Instant,
) -> StopVerdict:
    verdict = _check_stop(fence, stop, running, origin, now)
    if isinstance(verdict, StopAllowed):
        return attrs.evolve(verdict, ends_stage=False)
    return verdict


def _restore_with_leases(
    snapshot: FenceSnapshot, now: Instant, build_date_ns: int = 0
) -> ClaimFence:
    fence = _restore(snapshot, now, build_date_ns)
    for record in snapshot.records:
        if record.claim is not None:
            fence._leases[record.key] = Lease.received(record.claim, now)
    return fence


def _restore_nothing(
    snapshot: FenceSnapshot, now: Instant, build_date_ns: int = 0
) -> ClaimFence:
    return _restore(attrs.evolve(snapshot, records=()), now, build_date_ns)


def _restore_claims_only(
    snapshot: FenceSnapshot, now: Instant, build_date_ns: int = 0
) -> ClaimFence:
    records = tuple(attrs.evolve(r, tombstones=()) for r in snapshot.records)
    return _restore(attrs.evolve(snapshot, records=records), now, build_date_ns)


def _restore_trusting(
    snapshot: FenceSnapshot, now: Instant, build_date_ns: int = 0
) -> ClaimFence:
    trusted = attrs.evolve(snapshot, is_quarantined=False)
    return _restore(trusted, now, build_date_ns)


def _has_room(fence: ClaimFence, key: ClaimKey) -> bool:
    return True


def _probe_silently(
    fence: ClaimFence, claim: CoordinatorClaim, now: Instant
) -> ProbeVerdict:
    verdict = _probe(fence, claim, now)
    if isinstance(verdict, Rejected):
        return attrs.evolve(verdict, current_term=None)
    return verdict


FENCE_MUTANTS: tuple[Mutant, ...] = (
    *(
        _claim_rule(reason)
        for reason in RejectReason
        if reason is not RejectReason.TOO_MANY_MODELS
    ),
    Mutant("claim: TooManyModels", changed(ClaimFence, "_has_room", _has_room)),
    *(
        _load_rule(reason)
        for reason in (
            LoadRefusalReason.MISSING_TERM,
            LoadRefusalReason.MISSING_COORDINATOR_ID,
            LoadRefusalReason.MISSING_CLAIM,
            LoadRefusalReason.TERM_MISMATCH,
            LoadRefusalReason.COORDINATOR_MISMATCH,
            LoadRefusalReason.TOPOLOGY_RUN_MISMATCH,
            LoadRefusalReason.HASH_MISMATCH,
            LoadRefusalReason.RUN_STOPPED,
            LoadRefusalReason.LEASE_NOT_HELD,
            LoadRefusalReason.EXPIRED_LEASE,
        )
    ),
    _unfenced_rule(LoadRefusalReason.UNFENCED_FROM_NETWORK),
    _unfenced_rule(LoadRefusalReason.FENCED_CLAIM_LIVE),
    *(
        _stop_rule(reason)
        for reason in StopRefusalReason
        if reason is not StopRefusalReason.TOO_MANY_STOPS
    ),
    Mutant(
        "stop: TooManyStops",
        changed(ClaimFence, "_has_room_for_stop", lambda *_: True),
    ),
    *(
        _prepare_rule(reason)
        for reason in (
            PrepareRefusalReason.UNUSABLE_FIELD,
            PrepareRefusalReason.UNFENCED_FROM_NETWORK,
            PrepareRefusalReason.STALE_TERM,
            PrepareRefusalReason.CONFLICTING_SAME_TERM,
        )
    ),
    Mutant(
        "lease: four hours at most", changed(Lease, "received", classmethod(_uncapped))
    ),
    Mutant("lease: boottime counts", changed(Lease, "is_held", _held_by_wall)),
    Mutant("lease: the wall counts", changed(Lease, "is_held", _held_by_boottime)),
    Mutant("lease: its end is out", changed(Lease, "is_held", _held_to_the_end)),
    Mutant("renewal: never shortens", changed(Lease, "renewed_by", _the_last)),
    Mutant("renewal: prolongs", changed(Lease, "renewed_by", _the_first)),
    Mutant(
        "renewal: duplicates revive nothing",
        changed(ClaimFence, "_repeat_reason", lambda *_: None),
    ),
    Mutant(
        "early stops outlive a claim",
        changed(ClaimFence, "_accept", _accept_and_forget_stops),
    ),
    Mutant("claims are durable", changed(ClaimFence, "offer", _offer_unwritten)),
    Mutant("tombstones are durable", changed(ClaimFence, "bury", _bury_unwritten)),
    Mutant("a stop leaves a tombstone", changed(ClaimFence, "bury", _bury_nothing)),
    Mutant(
        "a stop ends its own term only",
        changed(ClaimFence, "check_stop", _stop_whatever_runs),
    ),
    Mutant("a stop stops", changed(ClaimFence, "check_stop", _stop_nothing)),
    Mutant(
        "a restart forgets leases",
        changed(ClaimFence, "restore", staticmethod(_restore_with_leases)),
    ),
    Mutant(
        "a restart remembers claims",
        changed(ClaimFence, "restore", staticmethod(_restore_nothing)),
    ),
    Mutant(
        "a restart remembers tombstones",
        changed(ClaimFence, "restore", staticmethod(_restore_claims_only)),
    ),
    Mutant(
        "a forgotten store has no vote",
        changed(ClaimFence, "restore", staticmethod(_restore_trusting)),
    ),
    Mutant("a quarantine ends", changed(ClaimFence, "expire", lambda *_: ())),
    Mutant(
        "a refusal says what is current",
        changed(ClaimFence, "probe", _probe_silently),
    ),
)
