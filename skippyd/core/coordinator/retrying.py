"""When a coordinator plans again: at a tick, soon after news, or after a back-off."""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.instant import MS_PER_S, Instant


RETRY_TICK_MS = 30 * MS_PER_S
DEBOUNCE_MS = 2 * MS_PER_S
BACK_OFF_FIRST_MS = 1 * MS_PER_S
BACK_OFF_MAX_MS = RETRY_TICK_MS
BACK_OFF_MAX_DOUBLINGS = 5


@attrs.define
class Retry:
    """The wait for the next plan; `due_ms` is None while nothing waits."""

    due_ms: int | None = attrs.field(default=None, init=False)
    failure_count: int = attrs.field(default=0, init=False)
    _is_backing_off: bool = attrs.field(default=False, init=False)

    def is_due(self, now: Instant) -> bool:
        """Say whether the wait is over."""
        return self.due_ms is not None and now.boottime_ms >= self.due_ms

    def end(self) -> None:
        """Wait no more."""
        self.due_ms = None

    def tick(self, now: Instant) -> None:
        """Wait for the tick."""
        self._is_backing_off = False
        self.due_ms = now.boottime_ms + RETRY_TICK_MS

    def hasten(self, now: Instant) -> None:
        """Plan soon after news, unless a back-off runs.

        Never later than the tick: a flapping peer must not hold planning up.
        """
        if self.due_ms is not None and not self._is_backing_off:
            self.due_ms = min(self.due_ms, now.boottime_ms + DEBOUNCE_MS)

    def back_off(self, now: Instant, jitter: float) -> None:
        """Wait longer after each failure: between half of the length and all of it."""
        doublings = min(self.failure_count, BACK_OFF_MAX_DOUBLINGS)
        length_ms = min(BACK_OFF_FIRST_MS << doublings, BACK_OFF_MAX_MS)
        self.failure_count += 1
        self._is_backing_off = True
        self.due_ms = now.boottime_ms + int(length_ms * (1 + jitter) / 2)
