"""The values behind a fence: durable records, leases in memory, and their bounds."""

from __future__ import annotations

from typing import Self

import attrs

from skippyd.core.coordinator.claim import ClaimKey, CoordinatorClaim
from skippyd.core.coordinator.instant import MAX_LEASE_MS, Instant
from skippyd.core.coordinator.messages import StageKey
from skippyd.ids import RunId, Term


TERM_HORIZON_NS = 366 * 24 * 60 * 60 * 1_000_000_000
"""How far ahead of the clocks a term may be (contract, "Identity of a model")."""

TERM_LIMIT = 2**63
"""Terms are stored as signed 64-bit integers."""

MAX_KEYS = 4_096
"""Model artifacts that a node remembers: about 8 MiB of records at most."""

MAX_EARLY_STOPS = 16
"""Stops of runs not claimed yet, kept for one model artifact."""


@attrs.frozen
class Tombstone:
    """A run that was stopped here and must not start again at this term (I6)."""

    term: Term
    run_id: RunId


@attrs.frozen(kw_only=True)
class FenceRecord:
    """The durable memory about one model artifact; one row of the store."""

    key: ClaimKey
    claim: CoordinatorClaim | None = None
    tombstones: tuple[Tombstone, ...] = ()

    @property
    def term(self) -> Term:
        """The accepted term, 0 when nothing was accepted yet."""
        return Term(0) if self.claim is None else self.claim.term

    def is_stopped(self, term: Term, run_id: RunId) -> bool:
        """Say whether a stop of this run was processed here."""
        return Tombstone(term, run_id) in self.tombstones

    def is_accepted(self, stage: StageKey, term: Term) -> bool:
        """Say whether a stage belongs to the accepted run."""
        return self.claim is not None and (
            self.claim.term,
            self.claim.epoch.topology_id,
            self.claim.epoch.run_id,
        ) == (term, stage.topology_id, stage.run_id)


@attrs.frozen(kw_only=True)
class FenceSnapshot:
    """All that a store keeps, as plain values.

    `instance_id` is drawn by the store when it is made; `is_quarantined` marks a
    known node whose store is new or older than it should be (I10).
    """

    instance_id: str
    is_quarantined: bool = False
    records: tuple[FenceRecord, ...] = ()


@attrs.frozen
class PersistFence:
    """Write this record; it must be durable before any later effect is performed."""

    record: FenceRecord


@attrs.frozen
class PersistQuarantine:
    """Write that the quarantine of this node is over."""

    instance_id: str


FenceEffect = PersistFence | PersistQuarantine


@attrs.frozen(kw_only=True)
class Lease:
    """The right to start loads, on both clocks; the earlier end counts."""

    until_unix_ms: int
    deadline_boottime_ms: int

    @classmethod
    def received(cls, claim: CoordinatorClaim, now: Instant) -> Self:
        """Turn a claim's wall-clock lease into a local deadline at its receipt."""
        duration_ms = min(claim.lease_until_unix_ms - now.unix_ms, MAX_LEASE_MS)
        return cls(
            until_unix_ms=claim.lease_until_unix_ms,
            deadline_boottime_ms=now.boottime_ms + duration_ms,
        )

    def renewed_by(self, fresh: Lease) -> Lease:
        """Return the lease after a renewal: it never ends earlier on either clock.

        One that does not end later on the wall clock is a late duplicate.
        """
        if fresh.until_unix_ms <= self.until_unix_ms:
            return self
        deadline_ms = max(self.deadline_boottime_ms, fresh.deadline_boottime_ms)
        return attrs.evolve(fresh, deadline_boottime_ms=deadline_ms)

    def is_held(self, now: Instant) -> bool:
        """Say whether a load may start now; both ends are exclusive (I4)."""
        return (
            now.boottime_ms < self.deadline_boottime_ms
            and now.unix_ms < self.until_unix_ms
        )
