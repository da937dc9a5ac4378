"""The run that a coordinator serves: its renewals, its loss and its grace."""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    Replied,
    RequestFailed,
    Send,
    StageLost,
)
from skippyd.core.coordinator.instant import MS_PER_S, Instant
from skippyd.core.coordinator.messages import ClaimAnswer, ClaimCoordinator
from skippyd.core.coordinator.phases import RENEW_AFTER_MS
from skippyd.core.coordinator.run import Run
from skippyd.core.coordinator.verdict import Rejected
from skippyd.ids import NodeId


WITHDRAW_GRACE_MS = 75 * MS_PER_S
"""How long a broken run keeps its route while a replacement is sought (facts 3.5)."""

DRAIN_TIMEOUT_MS = 60 * MS_PER_S
"""How long a withdrawn route may drain before its stages are stopped anyway."""

RENEW_RETRY_MS = 30 * MS_PER_S


@attrs.define
class Serving:
    """A published run; it is whole, lost (its grace runs), or being withdrawn."""

    run: Run
    _renew_ms: int
    _grace_ms: int = WITHDRAW_GRACE_MS
    _grace_ends_ms: int | None = attrs.field(default=None, init=False)
    _drain_ends_ms: int | None = attrs.field(default=None, init=False)

    @property
    def is_lost(self) -> bool:
        """Whether a stage was lost since the run was published."""
        return self._grace_ends_ms is not None

    @property
    def is_withdrawing(self) -> bool:
        """Whether the route was told to go."""
        return self._drain_ends_ms is not None

    @property
    def is_whole(self) -> bool:
        """Whether it serves with every stage, and is to go on."""
        return not self.is_lost and not self.is_withdrawing

    def next_deadline(self) -> int:
        """When `is_due` becomes true, in boottime milliseconds."""
        if self._drain_ends_ms is not None:
            return self._drain_ends_ms
        return self._renew_ms if self._grace_ends_ms is None else self._grace_ends_ms

    def is_due(self, now: Instant) -> bool:
        """Say whether a renewal, the end of the grace or of the drain has come."""
        return now.boottime_ms >= self.next_deadline()

    def lose(self, now: Instant) -> None:
        """Begin the grace; a second loss does not prolong it."""
        if self._grace_ends_ms is None:
            self._grace_ends_ms = now.boottime_ms + self._grace_ms

    def withdraw(self, now: Instant) -> None:
        """Begin to drain."""
        self._drain_ends_ms = now.boottime_ms + DRAIN_TIMEOUT_MS

    def renew(self, now: Instant) -> tuple[CampaignEffect, ...]:
        """Offer the same claim with a new lease to every stage."""
        self._renew_ms = now.boottime_ms + RENEW_AFTER_MS
        claim = ClaimCoordinator(self.run.claim(now))
        return tuple(Send(node_id, claim) for node_id in self.run.plan.node_ids)

    def renew_soon(self, now: Instant) -> None:
        """Try again shortly after a renewal that did not reach every stage."""
        self._renew_ms = min(self._renew_ms, now.boottime_ms + RENEW_RETRY_MS)

    def take_renewal(
        self, event: Replied | RequestFailed, now: Instant
    ) -> StageLost | None:
        """Take the answer to a renewal; return the loss when a newer run is there."""
        if isinstance(event, RequestFailed):
            self.renew_soon(now)
            return None
        verdict = event.reply.verdict if isinstance(event.reply, ClaimAnswer) else None
        if not isinstance(verdict, Rejected):
            return None
        if (verdict.current_term or 0) <= self.run.term:
            self.renew_soon(now)
            return None
        run_id = self.run.run_id
        return StageLost(run_id, event.node_id, verdict.text, is_fenced=True)

    def stops(self, spared: frozenset[NodeId] = frozenset()) -> tuple[Send, ...]:
        """Return the stops of its stages, the first stage first.

        `spared` nodes run a newer claim of ours, which has ended the old stage there.
        """
        return tuple(
            Send(stage.node_id, self.run.stop(stage))
            for stage in self.run.plan.stages
            if stage.node_id not in spared
        )
