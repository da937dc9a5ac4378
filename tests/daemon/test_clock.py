"""Both clocks are read, and boottime is the one that also runs through suspend."""

from __future__ import annotations

import time
from pathlib import Path

from skippyd.daemon.clock import read_instant


def test_an_instant_is_this_moment_on_both_clocks() -> None:
    before = time.time_ns() // 1_000_000
    uptime_ms = float(Path("/proc/uptime").read_text().split()[0]) * 1000

    now = read_instant()

    assert before <= now.unix_ms <= before + 10_000
    assert abs(now.boottime_ms - uptime_ms) < 10_000
    assert read_instant().boottime_ms >= now.boottime_ms
