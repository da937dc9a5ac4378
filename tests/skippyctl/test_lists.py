from __future__ import annotations

from skippyctl.lists import now_unix_ms


def test_ages_are_measured_on_the_wall_clock() -> None:
    """What the commands do with it is tested against a daemon, in `commands`."""
    first = now_unix_ms()
    assert 1_700_000_000_000 < first <= now_unix_ms()
