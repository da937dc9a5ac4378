"""A watchdog for tests that wait on other processes: stacks first, then a failure."""

from __future__ import annotations

import faulthandler
import signal
import sys
from typing import TYPE_CHECKING

import attrs
import trio


if TYPE_CHECKING:
    from types import FrameType, TracebackType

UNWIND_S = 5.0
GRACE_S = 15.0


class WatchdogBarkError(Exception):
    """A watched test did not end in time."""


@attrs.define
class Watchdog:
    """While entered: after `seconds`, print all stacks and make the test fail.

    Inside trio the tasks are cancelled, so that clean-up runs and the next test finds a
    clean thread; what does not unwind, and everything else, is interrupted by an
    exception. A main thread that does not come back to Python at all ends the whole
    run, with the stacks on the real standard error.
    """

    seconds: float
    real_stderr: int
    _has_barked: bool = False

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
        if self._has_barked and not isinstance(error, WatchdogBarkError):
            raise self._error() from error

    def _bark(self, number: int, frame: FrameType | None) -> None:
        if not self._has_barked:
            self._has_barked = True
            faulthandler.dump_traceback(file=sys.__stderr__ or self.real_stderr)
            if trio.lowlevel.in_trio_run():
                trio.lowlevel.current_trio_token().run_sync_soon(_cancel_everything)
                signal.setitimer(signal.ITIMER_REAL, UNWIND_S)
                return
        raise self._error()

    def _error(self) -> WatchdogBarkError:
        return WatchdogBarkError(
            f"the test did not end within {self.seconds:g} s; the stacks of all "
            "threads are in its captured standard error"
        )


def _cancel_everything() -> None:
    root = trio.lowlevel.current_root_task()
    assert root is not None
    for nursery in root.child_nurseries:
        for task in nursery.child_tasks:
            for inner in task.child_nurseries:
                inner.cancel_scope.cancel()
