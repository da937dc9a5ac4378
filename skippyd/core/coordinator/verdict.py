"""Closed answers to an offered claim, load, stop and preparation.

A refusal is a value, not an exception: it echoes what was attempted and carries the
term this node has accepted, so that the loser knows what to exceed.
"""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.claim import CoordinatorClaim
from skippyd.core.coordinator.reasons import (
    FENCING_IN_PROGRESS,
    LoadRefusalReason,
    PrepareRefusalReason,
    RejectReason,
    StopRefusalReason,
    refusal_text,
)
from skippyd.ids import CoordinatorId, RunId, Term


@attrs.frozen
class Accepted:
    """The claim holds: it is the first for its model, or the same one again."""

    claim: CoordinatorClaim


@attrs.frozen
class Superseded:
    """The claim holds and replaces the claim of an older term."""

    claim: CoordinatorClaim
    supersedes_term: Term


@attrs.frozen
class FencingInProgress:
    """The claim is stored, but older work of this node has not ended yet: ask again."""

    claim: CoordinatorClaim

    @property
    def text(self) -> str:
        """What the coordinator is told."""
        return FENCING_IN_PROGRESS


@attrs.frozen(kw_only=True)
class Rejected:
    """The claim is refused; `current_term` is what this node has accepted, if any."""

    claim: CoordinatorClaim
    reason: RejectReason
    current_term: Term | None

    @property
    def text(self) -> str:
        """The refusal in words (skippy-facts 3.1)."""
        return refusal_text(self.reason, self.claim.term, self.current_term)


ProbeVerdict = Accepted | Superseded | Rejected
ClaimVerdict = Accepted | Superseded | FencingInProgress | Rejected


@attrs.frozen(kw_only=True)
class FencedRun:
    """A run whose work on this node a claim would end, as a probe reports it."""

    run_id: RunId
    coordinator_id: CoordinatorId | None
    term: Term
    is_serving: bool
    is_lease_held: bool


@attrs.frozen
class LoadAllowed:
    """The load may start now; `is_fenced` is false for local loads without a term."""

    is_fenced: bool


@attrs.frozen(kw_only=True)
class LoadRefused:
    """The load must not start, or its stage must not become ready."""

    reason: LoadRefusalReason
    term: Term
    current_term: Term | None
    detail: str = ""

    @property
    def text(self) -> str:
        """The refusal in words, with what the shell knows about the failure."""
        text = refusal_text(self.reason, self.term, self.current_term)
        return f"{text}: {self.detail}" if self.detail else text


LoadVerdict = LoadAllowed | LoadRefused


@attrs.frozen(kw_only=True)
class StopAllowed:
    """The stop is processed, also when nothing of its run is here.

    `ends_stage`: the live stage of that key is the one meant. `leaves_tombstone`:
    its run must never start here again.
    """

    ends_stage: bool
    leaves_tombstone: bool


@attrs.frozen(kw_only=True)
class StopRefused:
    """The stop changes nothing."""

    reason: StopRefusalReason
    term: Term
    current_term: Term | None

    @property
    def text(self) -> str:
        """The refusal in words (skippy-facts 2.5)."""
        return refusal_text(self.reason, self.term, self.current_term)


StopVerdict = StopAllowed | StopRefused


@attrs.frozen
class PrepareAllowed:
    """The preparation may start."""


@attrs.frozen(kw_only=True)
class PrepareRefused:
    """The preparation must not start."""

    reason: PrepareRefusalReason
    term: Term
    current_term: Term | None

    @property
    def text(self) -> str:
        """The refusal in words."""
        return refusal_text(self.reason, self.term, self.current_term)


PrepareVerdict = PrepareAllowed | PrepareRefused
