"""Named places at which a test lets the daemon die, as `kill -9` would.

Active only when `SKIPPY_TEST_FAIL_POINT` is set at start: `NAME`, or `NAME:N` for the
N-th time that the place is reached. Nothing is flushed, closed or told to anyone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import attrs

from skippyd.coordination.fence_store import AFTER_COMMIT, BEFORE_COMMIT
from skippyd.coordination.stage_runs import AFTER_KILL
from skippyd.errors import ConfigError


if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "SKIPPY_TEST_FAIL_POINT"
NAMES = (BEFORE_COMMIT, AFTER_COMMIT, AFTER_KILL)
STATUS_OF_KILL = 137
"""What a shell shows for a process ended by SIGKILL."""


@attrs.define
class FailPoints:
    """Counts one place down and ends the process there; does nothing without a name."""

    name: str | None = None
    reaches_left: int = 1

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> FailPoints:
        """Read the variable; to be called once, at start.

        Raises:
            ConfigError: It names no fail point, or no count.
        """
        written = environment.get(VARIABLE)
        if not written:
            return cls()
        name, _, count = written.partition(":")
        is_count = count.isascii() and count.isdecimal() and int(count) > 0
        if name not in NAMES or not (is_count or not count):
            raise ConfigError(
                f"{VARIABLE}={written!r}: write one of {', '.join(NAMES)}, and :N for "
                "the N-th time; leave it unset outside tests"
            )
        return cls(name, int(count or 1))

    def reach(self, name: str) -> None:
        """Say that a place is reached."""
        if name != self.name:
            return
        self.reaches_left -= 1
        if self.reaches_left == 0:
            os._exit(STATUS_OF_KILL)
