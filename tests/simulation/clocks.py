"""The two clocks of a simulated node: one drifts, the other drifts and jumps."""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.instant import Instant
from skippyd.ids import UnixMs


EPOCH_UNIX_MS = 1_700_000_000_000
"""True wall time at the start of every schedule."""

_MILLION = 1_000_000


@attrs.define
class NodeClocks:
    """CLOCK_BOOTTIME and the wall clock of one node, computed from true time."""

    drift_ppm: int
    boot_ms: int
    wall_offset_ms: int = 0

    def read(self, true_ms: int) -> Instant:
        """Return both clocks at a true time."""
        local_ms = true_ms
        if self.drift_ppm:
            local_ms += true_ms * self.drift_ppm // _MILLION
        return Instant(
            UnixMs(EPOCH_UNIX_MS + self.wall_offset_ms + local_ms),
            self.boot_ms + local_ms,
        )

    def true_ms_of(self, boottime_ms: int) -> int:
        """Return the true time at which boottime has surely reached a value."""
        local_ms = boottime_ms - self.boot_ms
        return local_ms * _MILLION // (_MILLION + self.drift_ppm) + 2
