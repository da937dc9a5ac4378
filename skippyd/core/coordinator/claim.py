"""The claim of a coordinator, its key and epoch, and the checks of its shape."""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.reasons import RejectReason
from skippyd.ids import CoordinatorId, ModelId, RunId, Term, TopologyId, UnixMs


MAX_FIELD_BYTES = 512
"""Longest text field of a claim: every accepted claim is kept on disk for good."""

MAX_LEASE_UNTIL_UNIX_MS = 2**63
"""The store keeps leases as signed 64-bit integers."""


@attrs.frozen(kw_only=True, cache_hash=True)
class ClaimKey:
    """The model artifact that a claim is about; a fence remembers one claim a key."""

    model_id: ModelId
    package_ref: str
    manifest_sha256: str


@attrs.frozen(kw_only=True)
class ClaimEpoch:
    """Everything that must be equal for two claims of one term to be the same claim.

    The lease is not part of it: a renewal keeps the epoch.
    """

    key: ClaimKey
    topology_id: TopologyId
    run_id: RunId
    coordinator_id: CoordinatorId
    participant_set_hash: str
    topology_hash: str


@attrs.frozen(kw_only=True)
class CoordinatorClaim:
    """A coordinator's proposal to own one run of one model at one term."""

    epoch: ClaimEpoch
    term: Term
    lease_until_unix_ms: UnixMs

    @property
    def key(self) -> ClaimKey:
        """The model artifact that is claimed."""
        return self.epoch.key

    def is_same_identity(self, other: CoordinatorClaim) -> bool:
        """Say whether both claims are one claim, a renewal at most."""
        return self.term == other.term and self.epoch == other.epoch


def shape_defect(claim: CoordinatorClaim, now_unix_ms: UnixMs) -> RejectReason | None:
    """Return the first defect of a claim that needs no memory to see, or None.

    The order is skippy-facts 3.1; the length bound stands after the missing fields.
    """
    if (missing := _missing_field(claim)) is not None:
        return missing
    is_lease_storable = claim.lease_until_unix_ms < MAX_LEASE_UNTIL_UNIX_MS
    if not (is_lease_storable and all(map(is_storable, _texts(claim.epoch)))):
        return RejectReason.UNUSABLE_FIELD
    if claim.lease_until_unix_ms <= now_unix_ms:
        return RejectReason.EXPIRED_LEASE
    return None


def is_storable(text: str) -> bool:
    """Say whether a peer's text is short enough and valid Unicode (no lone halves)."""
    if len(text) > MAX_FIELD_BYTES:
        return False
    try:
        # JSON may smuggle lone surrogates in; no store takes them.
        encoded = text.encode()
    except UnicodeEncodeError:
        return False
    return len(encoded) <= MAX_FIELD_BYTES


def _missing_field(claim: CoordinatorClaim) -> RejectReason | None:
    epoch = claim.epoch
    checks = (
        (epoch.key.model_id, RejectReason.MISSING_MODEL_ID),
        (epoch.key.package_ref, RejectReason.MISSING_PACKAGE_REF),
        (epoch.key.manifest_sha256, RejectReason.MISSING_MANIFEST_SHA256),
        (epoch.topology_id and epoch.run_id, RejectReason.MISSING_TOPOLOGY_RUN),
        (epoch.coordinator_id, RejectReason.MISSING_COORDINATOR_ID),
        (claim.term > 0, RejectReason.MISSING_TERM),
        (
            epoch.participant_set_hash and epoch.topology_hash,
            RejectReason.MISSING_HASHES,
        ),
    )
    return next((reason for present, reason in checks if not present), None)


def _texts(epoch: ClaimEpoch) -> tuple[str, ...]:
    return (
        epoch.key.model_id,
        epoch.key.package_ref,
        epoch.key.manifest_sha256,
        epoch.topology_id,
        epoch.run_id,
        epoch.coordinator_id,
        epoch.participant_set_hash,
        epoch.topology_hash,
    )
