"""What one node remembers about claims, and the verdicts that follow from it.

Theory of operation. A fence holds one record a model artifact: the last accepted
claim and the stops it has processed. Questions (`probe`, `check_load`, `check_stop`,
`check_prepare`) change nothing; `offer` and `bury` change memory and return
`PersistFence` effects, which the shell must have on disk before any answer leaves
(I1). A failed write ends the process: memory and disk must not part.

Leases stand on two clocks (I4) and are memory only: after `restore` no lease is held
until the same claim is offered again. Records are never forgotten, an expired claim
still fences older terms; a bound on their number keeps peers from filling the disk.
"""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.claim import ClaimKey, CoordinatorClaim, shape_defect
from skippyd.core.coordinator.instant import MAX_LEASE_MS, NS_PER_MS, Instant
from skippyd.core.coordinator.load_rules import (
    are_usable,
    claim_mismatch,
    is_old_generation,
    prepare_reason,
    term_to_reach,
)
from skippyd.core.coordinator.memory import (
    MAX_EARLY_STOPS,
    MAX_KEYS,
    TERM_HORIZON_NS,
    TERM_LIMIT,
    FenceRecord,
    FenceSnapshot,
    Lease,
    PersistFence,
    PersistQuarantine,
    Tombstone,
)
from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    LoadStage,
    Origin,
    StopStage,
)
from skippyd.core.coordinator.reasons import (
    LoadRefusalReason,
    PrepareRefusalReason,
    RejectReason,
    StopRefusalReason,
)
from skippyd.core.coordinator.verdict import (
    Accepted,
    LoadAllowed,
    LoadRefused,
    LoadVerdict,
    PrepareAllowed,
    PrepareRefused,
    PrepareVerdict,
    ProbeVerdict,
    Rejected,
    StopAllowed,
    StopRefused,
    StopVerdict,
    Superseded,
)
from skippyd.ids import Term


@attrs.define(kw_only=True)
class ClaimFence:
    """The claim memory of one node; see the module docstring for its rules.

    Build it with `restore`. `build_date_ns` bounds terms on a node whose clock is
    far behind.
    """

    _instance_id: str
    _build_date_ns: int
    _quarantined_until_boottime_ms: int | None
    _records: dict[ClaimKey, FenceRecord]
    _leases: dict[ClaimKey, Lease] = attrs.Factory(dict)

    @classmethod
    def restore(
        cls, snapshot: FenceSnapshot, now: Instant, build_date_ns: int = 0
    ) -> ClaimFence:
        """Rebuild the memory after a start; no lease is held, a quarantine restarts."""
        until = now.boottime_ms + MAX_LEASE_MS if snapshot.is_quarantined else None
        return cls(
            instance_id=snapshot.instance_id,
            build_date_ns=build_date_ns,
            quarantined_until_boottime_ms=until,
            records={record.key: record for record in snapshot.records},
        )

    @property
    def instance_id(self) -> str:
        """The random name of the store behind this memory."""
        return self._instance_id

    @property
    def quarantined_until_boottime_ms(self) -> int | None:
        """When this node votes again, or None when it does."""
        return self._quarantined_until_boottime_ms

    def snapshot(self) -> FenceSnapshot:
        """Return everything durable, sorted by key."""
        records = sorted(
            self._records.values(), key=lambda record: attrs.astuple(record.key)
        )
        return FenceSnapshot(
            instance_id=self._instance_id,
            is_quarantined=self._quarantined_until_boottime_ms is not None,
            records=tuple(records),
        )

    def claim_of(self, key: ClaimKey) -> CoordinatorClaim | None:
        """Return the accepted claim of a model artifact."""
        return self._record(key).claim

    def lease_of(self, key: ClaimKey) -> Lease | None:
        """Return the lease in memory, held or run out; None after a restart."""
        return self._leases.get(key)

    def is_lease_held(self, key: ClaimKey, now: Instant) -> bool:
        """Say whether the accepted claim may start loads now."""
        lease = self._leases.get(key)
        return lease is not None and lease.is_held(now)

    def is_claim_live(self, key: ClaimKey, now: Instant) -> bool:
        """Say whether a fenced claim keeps local unfenced loads away (I12)."""
        record = self._record(key)
        return (
            record.claim is not None
            and self.is_lease_held(key, now)
            and not record.is_stopped(record.claim.term, record.claim.epoch.run_id)
        )

    def probe(self, claim: CoordinatorClaim, now: Instant) -> ProbeVerdict:
        """Return the verdict that `offer` would give, storing nothing."""
        record = self._record(claim.key)
        current_term = None if record.claim is None else record.claim.term
        reason = self._reject_reason(claim, record, now)
        if reason is not None:
            return Rejected(claim=claim, reason=reason, current_term=current_term)
        if record.claim is None or record.claim.term == claim.term:
            return Accepted(claim)
        return Superseded(claim, record.claim.term)

    def offer(
        self, claim: CoordinatorClaim, now: Instant
    ) -> tuple[ProbeVerdict, tuple[PersistFence, ...]]:
        """Decide on a claim and remember an accepted one.

        Returns the verdict and what must be durable before it leaves. A repeated
        claim never shortens its lease and writes nothing (I13).
        """
        verdict = self.probe(claim, now)
        if isinstance(verdict, Rejected):
            return verdict, ()
        return verdict, self._accept(claim, now)

    def check_load(self, load: LoadStage, origin: Origin, now: Instant) -> LoadVerdict:
        """Decide whether a load may start, or become ready, at this moment (I14)."""
        if load.coordinator_term == 0 and not load.coordinator_id:
            reason = self._unfenced_load_reason(load.key, origin, now)
        else:
            reason = self._load_reason(load, now)
        if reason is None:
            return LoadAllowed(is_fenced=load.coordinator_term > 0)
        return self.load_refusal(load, reason)

    def load_refusal(
        self, load: LoadStage, reason: LoadRefusalReason, detail: str = ""
    ) -> LoadRefused:
        """Refuse a load with the term that this node has accepted."""
        claim = self.claim_of(load.key)
        return LoadRefused(
            reason=reason,
            term=load.coordinator_term,
            current_term=None if claim is None else claim.term,
            detail=detail,
        )

    def check_prepare(self, load: LoadStage, origin: Origin) -> PrepareVerdict:
        """Decide whether a stage may fetch ahead; no claim is needed yet for that."""
        record = self._record(load.key)
        reason = prepare_reason(load, record, origin)
        if reason is None:
            return PrepareAllowed()
        return self.prepare_refusal(load, reason)

    def prepare_refusal(
        self, load: LoadStage, reason: PrepareRefusalReason
    ) -> PrepareRefused:
        """Refuse a preparation with the term that this node has accepted."""
        claim = self.claim_of(load.key)
        return PrepareRefused(
            reason=reason,
            term=load.coordinator_term,
            current_term=None if claim is None else claim.term,
        )

    def check_stop(
        self, stop: StopStage, running: LoadStage | None, origin: Origin, now: Instant
    ) -> StopVerdict:
        """Decide on a stop.

        Args:
            stop: What was asked.
            running: The load of the live stage of the stop's run, if any.
            origin: Where the stop came from.
            now: The moment of the decision.
        """
        record = self._record(stop.key)
        term = stop.coordinator_term
        reason = self._stop_reason(stop, running, origin, now)
        if reason is None and not self._has_room_for_stop(stop, record):
            reason = StopRefusalReason.TOO_MANY_STOPS
        if reason is not None:
            return self._stop_refusal(stop, running, reason)
        is_accepted = term > 0 and record.is_accepted(stop.stage, term)
        return StopAllowed(
            ends_stage=running is not None and running.coordinator_term == term,
            leaves_tombstone=term > record.term or is_accepted,
        )

    def check_cancel(
        self,
        cancel: CancelPrepareStage,
        prepared: LoadStage | None,
        origin: Origin,
        now: Instant,
    ) -> StopRefused | None:
        """Return why a preparation must not be cancelled; the rules of a stop hold."""
        reason = self._stop_reason(cancel, prepared, origin, now)
        return None if reason is None else self._stop_refusal(cancel, prepared, reason)

    def bury(self, stop: StopStage) -> tuple[PersistFence, ...]:
        """Remember for good that a run was stopped; empty when it is known already."""
        record = self._record(stop.key)
        if record.is_stopped(stop.coordinator_term, stop.stage.run_id):
            return ()
        tombstone = Tombstone(stop.coordinator_term, stop.stage.run_id)
        return self._remember(
            attrs.evolve(record, tombstones=(*record.tombstones, tombstone))
        )

    def next_deadline(self) -> int | None:
        """When `expire` has something to do, in boottime milliseconds."""
        return self._quarantined_until_boottime_ms

    def expire(self, now: Instant) -> tuple[PersistQuarantine, ...]:
        """End a quarantine whose time is over; leases need no help to run out."""
        until = self._quarantined_until_boottime_ms
        if until is None or now.boottime_ms < until:
            return ()
        return self.lift_quarantine()

    def lift_quarantine(self) -> tuple[PersistQuarantine, ...]:
        """Vote again at once: the operator vouches that nothing was forgotten."""
        if self._quarantined_until_boottime_ms is None:
            return ()
        self._quarantined_until_boottime_ms = None
        return (PersistQuarantine(self._instance_id),)

    def _record(self, key: ClaimKey) -> FenceRecord:
        return self._records.get(key) or FenceRecord(key=key)

    def _remember(self, record: FenceRecord) -> tuple[PersistFence, ...]:
        self._records[record.key] = record
        return (PersistFence(record),)

    def _has_room(self, key: ClaimKey) -> bool:
        return key in self._records or len(self._records) < MAX_KEYS

    def _is_too_far(self, term: Term, record: FenceRecord, now: Instant) -> bool:
        newest = max(record.term, now.unix_ms * NS_PER_MS, self._build_date_ns)
        return term > newest + TERM_HORIZON_NS or term >= TERM_LIMIT

    def _reject_reason(
        self, claim: CoordinatorClaim, record: FenceRecord, now: Instant
    ) -> RejectReason | None:
        if (defect := shape_defect(claim, now.unix_ms)) is not None:
            return defect
        if self._is_too_far(claim.term, record, now):
            return RejectReason.TERM_TOO_FAR_AHEAD
        if self._quarantined_until_boottime_ms is not None:
            return RejectReason.QUARANTINED
        if claim.term < record.term:
            return RejectReason.STALE_TERM
        accepted = record.claim if claim.term == record.term else None
        if accepted is not None and not claim.is_same_identity(accepted):
            return RejectReason.CONFLICTING_SAME_TERM
        if record.is_stopped(claim.term, claim.epoch.run_id):
            return RejectReason.RUN_STOPPED
        if accepted is not None:
            return self._repeat_reason(claim, now)
        return None if self._has_room(claim.key) else RejectReason.TOO_MANY_MODELS

    def _repeat_reason(
        self, claim: CoordinatorClaim, now: Instant
    ) -> RejectReason | None:
        lease = self._leases.get(claim.key)
        # A late duplicate must not revive a lease that boottime has ended, even when
        # the wall clock was set back meanwhile; a real renewal ends later.
        if lease is None or claim.lease_until_unix_ms > lease.until_unix_ms:
            return None
        if now.boottime_ms < lease.deadline_boottime_ms:
            return None
        return RejectReason.EXPIRED_LEASE

    def _accept(
        self, claim: CoordinatorClaim, now: Instant
    ) -> tuple[PersistFence, ...]:
        record = self._record(claim.key)
        if record.claim is None or claim.term > record.claim.term:
            self._leases[claim.key] = Lease.received(claim, now)
            early = tuple(stop for stop in record.tombstones if stop.term > claim.term)
            return self._remember(
                FenceRecord(key=claim.key, claim=claim, tombstones=early)
            )
        held = self._leases.get(claim.key)
        fresh = Lease.received(claim, now)
        self._leases[claim.key] = fresh if held is None else held.renewed_by(fresh)
        if claim.lease_until_unix_ms <= record.claim.lease_until_unix_ms:
            return ()
        return self._remember(attrs.evolve(record, claim=claim))

    def _unfenced_load_reason(
        self, key: ClaimKey, origin: Origin, now: Instant
    ) -> LoadRefusalReason | None:
        if origin is not Origin.ADMIN:
            return LoadRefusalReason.UNFENCED_FROM_NETWORK
        if self.is_claim_live(key, now):
            return LoadRefusalReason.FENCED_CLAIM_LIVE
        return None

    def _load_reason(self, load: LoadStage, now: Instant) -> LoadRefusalReason | None:
        if load.coordinator_term <= 0:
            return LoadRefusalReason.MISSING_TERM
        if not load.coordinator_id:
            return LoadRefusalReason.MISSING_COORDINATOR_ID
        record = self._record(load.key)
        if record.claim is None:
            return LoadRefusalReason.MISSING_CLAIM
        if (mismatch := claim_mismatch(load, record.claim)) is not None:
            return mismatch
        if record.is_stopped(load.coordinator_term, load.stage.run_id):
            return LoadRefusalReason.RUN_STOPPED
        lease = self._leases.get(load.key)
        if lease is None:
            return LoadRefusalReason.LEASE_NOT_HELD
        return None if lease.is_held(now) else LoadRefusalReason.EXPIRED_LEASE

    def _stop_reason(
        self,
        stop: StopStage | CancelPrepareStage,
        meant: LoadStage | None,
        origin: Origin,
        now: Instant,
    ) -> StopRefusalReason | None:
        term = stop.coordinator_term
        record = self._record(stop.key)
        if term <= 0 and origin is not Origin.ADMIN:
            return StopRefusalReason.UNFENCED_FROM_NETWORK
        if not are_usable(stop):
            return StopRefusalReason.UNUSABLE_FIELD
        if term < term_to_reach(stop, record, meant):
            return StopRefusalReason.STALE_TERM
        if self._is_too_far(term, record, now):
            return StopRefusalReason.TERM_TOO_FAR_AHEAD
        if is_old_generation(stop, meant):
            return StopRefusalReason.STALE_GENERATION
        return None

    def _stop_refusal(
        self,
        stop: StopStage | CancelPrepareStage,
        meant: LoadStage | None,
        reason: StopRefusalReason,
    ) -> StopRefused:
        current = term_to_reach(stop, self._record(stop.key), meant)
        return StopRefused(
            reason=reason, term=stop.coordinator_term, current_term=current or None
        )

    def _has_room_for_stop(self, stop: StopStage, record: FenceRecord) -> bool:
        if stop.coordinator_term <= record.term or record.is_stopped(
            stop.coordinator_term, stop.stage.run_id
        ):
            return True
        early = sum(stone.term > record.term for stone in record.tombstones)
        return early < MAX_EARLY_STOPS and self._has_room(stop.key)
