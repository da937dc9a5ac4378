"""The phases of an attempt, how long each may take, and how one fails."""

from __future__ import annotations

from enum import Enum

import attrs

from skippyd.core.coordinator.instant import MAX_LEASE_MS, MS_PER_S
from skippyd.core.coordinator.reasons import RejectReason
from skippyd.ids import NodeId


PROBE_TIMEOUT_MS = 10 * MS_PER_S
PROBE_FRESH_MS = 10 * MS_PER_S
CLAIM_TIMEOUT_MS = 30 * MS_PER_S
PROVE_TIMEOUT_MS = 120 * MS_PER_S
PUBLISH_TIMEOUT_MS = 30 * MS_PER_S

FIRST_POLL_MS = MS_PER_S // 4
"""When a preparation is first asked about: most parts are there already."""

POLL_MS = 2 * MS_PER_S
"""How often a preparation is asked about and an unfinished claim repeated."""

RENEW_AFTER_MS = MAX_LEASE_MS // 2
"""A lease is renewed after half its time, so that one lost round does no harm."""

UNFIT_REASONS = frozenset({RejectReason.QUARANTINED, RejectReason.TOO_MANY_MODELS})
"""Refusals that no higher term overcomes: the next plan does without the node."""


class Phase(Enum):
    """How far an attempt is."""

    PROBING = "probing"
    PREPARING = "preparing"
    CLAIMING = "claiming"
    LOADING = "loading"
    PROVING = "proving"
    PUBLISHING = "publishing"
    PUBLISHED = "published"

    @property
    def has_claimed(self) -> bool:
        """Whether claims of the attempt may have ended other runs."""
        return self not in {Phase.PROBING, Phase.PREPARING}


@attrs.frozen(kw_only=True)
class AttemptFailure:
    """Why an attempt ended.

    `blamed` nodes are left out of the next plan; `is_blocked`: another run is in the
    way and stays; `is_final`: trying again would end alike.
    """

    reason: str
    blamed: tuple[NodeId, ...] = ()
    is_blocked: bool = False
    is_final: bool = False
