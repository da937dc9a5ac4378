"""One moment on the two clocks that leases are measured with."""

from __future__ import annotations

import attrs

from skippyd.ids import UnixMs


MS_PER_S = 1_000
NS_PER_MS = 1_000_000

MAX_LEASE_MS = 4 * 60 * 60 * MS_PER_S
"""The longest lease a node grants, whatever the claim says (skippy-facts 3.4)."""


@attrs.frozen
class Instant:
    """A moment: wall clock and CLOCK_BOOTTIME, both read by the shell at once.

    The wall clock may jump by any amount; boottime runs through suspend and never
    goes back. Safety rests on boottime, the wall clock may only shorten a lease.
    """

    unix_ms: UnixMs
    boottime_ms: int

    def later(self, duration_ms: int) -> Instant:
        """Return the moment `duration_ms` later on both clocks."""
        return Instant(
            UnixMs(self.unix_ms + duration_ms), self.boottime_ms + duration_ms
        )
