"""A watchdog for tests that wait on other processes: stacks first, then a failure."""

from __future__ import annotations

import faulthandler
import signal
import sys
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from types import FrameType, TracebackType

GRACE_S = 15.0


class WatchdogBarkError(Exception):
    """A watched test did not end in time."""


@attrs.define
class Watchdog:
    """While entered: after `seconds`, print all stacks and raise in the main thread.

    A main thread that does not come back to Python within the grace ends the whole run,
    with the stacks on the real standard error.
    """

    seconds: float
    real_stderr: int

    def __enter__(self) -> None:
        faulthandler.dump_traceback_later(
            self.seconds + GRACE_S, exit=True, file=self.real_stderr
        )
        signal.signal(signal.SIGALRM, self._bark)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        faulthandler.cancel_dump_traceback_later()

    def _bark(self, number: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__ or self.real_stderr)
        raise WatchdogBarkError(
            f"the test did not end within {self.seconds:g} s; the stacks of all "
            "threads are in its captured standard error"
        )
