"""The one reader of wall time and of CLOCK_BOOTTIME."""

from __future__ import annotations

import time

from skippyd.core.coordinator.instant import NS_PER_MS, Instant
from skippyd.ids import UnixMs


def read_instant() -> Instant:
    """Return this moment on both clocks that leases are measured with.

    Trio's own clock stops while the machine is suspended, so no lease rests on it.
    """
    return Instant(
        UnixMs(time.time_ns() // NS_PER_MS),
        time.clock_gettime_ns(time.CLOCK_BOOTTIME) // NS_PER_MS,
    )
