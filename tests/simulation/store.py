"""A fence store with the difference that matters: what is pending, what is durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.coordinator.memory import FenceRecord, FenceSnapshot


if TYPE_CHECKING:
    from skippyd.core.coordinator.claim import ClaimKey


@attrs.define
class SimulatedStore:
    """One node's disk; a crash loses what was written and not yet synced.

    `durable_term` is that of the one model there is.
    """

    instance_id: str
    is_quarantined: bool = False
    durable: dict[ClaimKey, FenceRecord] = attrs.field(factory=dict, init=False)
    durable_term: int = attrs.field(default=0, init=False)
    _pending: list[FenceRecord] = attrs.field(factory=list, init=False)

    def write(self, record: FenceRecord) -> None:
        """Hand a record to the disk; it is not safe yet."""
        self._pending.append(record)

    def sync(self) -> None:
        """Make every pending record durable."""
        for record in self._pending:
            self.durable[record.key] = record
            self.durable_term = record.term
        self._pending.clear()

    def crash(self) -> None:
        """Lose what is pending."""
        self._pending.clear()

    def lose(self, instance_id: str) -> None:
        """Lose everything; the node's identity is known, so it comes back quarantined."""
        self.crash()
        self.durable.clear()
        self.durable_term = 0
        self.instance_id = instance_id
        self.is_quarantined = True

    def snapshot(self) -> FenceSnapshot:
        """Return what a starting node reads."""
        return FenceSnapshot(
            instance_id=self.instance_id,
            is_quarantined=self.is_quarantined,
            records=tuple(self.durable.values()),
        )
