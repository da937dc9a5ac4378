"""Waiting for descriptors: with a deadline, and so that a lane can be told to stop.

A lane's thread waits in one place only, on its `LaneSignal` together with whatever it
waits for. The signal is a descriptor of its own in that same poll, so a cancellation or
a shutdown from another thread ends or shortens every wait of the lane at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import threading
import time
from typing import TYPE_CHECKING, Protocol

from skippyd.errors import FailureCode, StageFailureError


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.stage.node import StageNode

KEPT_POLLERS = 16


class Pollable(Protocol):
    """Anything with a descriptor."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


class Waiter(Protocol):
    """Where a thread waits for what it reads."""

    def wait(self, sources: Sequence[Pollable], until: float) -> list[int]:
        """Descriptors of `sources` that are readable; may be empty before `until`.

        Args:
            sources: What to watch.
            until: Deadline on the clock of `time.monotonic`; infinity is for ever.
        """
        ...


class PlainWaiter:
    """Waits for the sources alone: for threads that nobody cancels."""

    def wait(self, sources: Sequence[Pollable], until: float) -> list[int]:
        """Descriptors that are readable; empty when time ran out."""
        return wait_readable(sources, max(0.0, until - time.monotonic()))


class WakeDescriptor:
    """A descriptor that another thread makes readable; safe to use after `close`."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        # Without it a late `wake` could write into a descriptor reused by others.
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """The descriptor to poll; -1 when closed."""
        return self._descriptor

    def wake(self) -> None:
        """Make it readable; from any thread."""
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        """Make it unreadable again."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        """Close it; harmless when repeated."""
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1


class LaneSignal:
    """Tells one lane's thread to stop, now or soon; and where that thread waits.

    Args:
        index: The stage, for the failures raised here.
        cancel_s: How long a wait may still last after `cancel`.
        spin_us: Busy polling before the thread sleeps, in microseconds.
    """

    def __init__(self, index: int, *, cancel_s: float, spin_us: int = 0) -> None:
        self._index = index
        self._cancel_s = cancel_s
        self._spin_ns = spin_us * 1000
        self._wake = WakeDescriptor()
        self._wake_fd = self._wake.fileno()
        self._cancelled_until = math.inf
        self._is_interrupted = False
        self._pollers: dict[tuple[int, ...], select.poll] = {}

    @classmethod
    def of(cls, node: StageNode) -> LaneSignal:
        """A signal with the stage's own numbers."""
        return cls(
            node.index,
            cancel_s=node.timings.cancel,
            spin_us=node.config.lane_poll_us,
        )

    @property
    def is_interrupted(self) -> bool:
        """Whether the lane has to end."""
        return self._is_interrupted

    def cancel(self) -> None:
        """Give every wait of this request a last, short deadline; from any thread."""
        self._cancelled_until = time.monotonic() + self._cancel_s
        self._wake.wake()

    def renew(self) -> None:
        """Forget a cancellation: the lane begins another request."""
        self._cancelled_until = math.inf

    def interrupt(self) -> None:
        """End every wait now and for good; from any thread."""
        self._is_interrupted = True
        self._wake.wake()

    def poke(self) -> None:
        """Let the thread look again at what it waits for; from any thread."""
        self._wake.wake()

    def wait(self, sources: Sequence[Pollable], until: float) -> list[int]:
        """Descriptors of `sources` that are readable; may be empty before `until`.

        Raises:
            StageFailureError: The lane was interrupted, or was cancelled and the time
                it had left is over.
        """
        if self._is_interrupted:
            raise self._stopping()
        until = min(until, self._cancelled_until)
        left = until - time.monotonic()
        if left <= 0:
            if until == self._cancelled_until:
                raise StageFailureError(
                    FailureCode.CANCELLED,
                    self._index,
                    f"cancelled; the chain did not answer any more in "
                    f"{self._cancel_s:g} s",
                )
            return []
        readable = self._poll(sources, left)
        # An interrupt also shuts connections down: that is not the peer's doing.
        if self._is_interrupted:
            raise self._stopping()
        if self._wake_fd in readable:
            self._wake.clear()
            readable.remove(self._wake_fd)
        return readable

    @property
    def descriptor(self) -> int:
        """Readable when the thread should look again at what it waits for."""
        return self._wake_fd

    def left_ms(self, until: float) -> int:
        """Milliseconds that a wait may take here; 0 when its time is over."""
        left = min(until, self._cancelled_until) - time.monotonic()
        return max(0, math.ceil(left * 1000))

    def close(self) -> None:
        """Give the descriptor back."""
        self._wake.close()

    def _stopping(self) -> StageFailureError:
        return StageFailureError(
            FailureCode.CANCELLED, self._index, "the stage is stopping"
        )

    def _poll(self, sources: Sequence[Pollable], left: float) -> list[int]:
        poller = self._poller((*[s.fileno() for s in sources], self._wake_fd))
        if self._spin_ns:
            spin_until = time.perf_counter_ns() + self._spin_ns
            while time.perf_counter_ns() < spin_until:
                if readable := poller.poll(0):
                    return [descriptor for descriptor, _events in readable]
        timeout_ms = None if math.isinf(left) else math.ceil(left * 1000)
        return [descriptor for descriptor, _events in poller.poll(timeout_ms)]

    def _poller(self, descriptors: tuple[int, ...]) -> select.poll:
        # A poll object is a list of numbers, so it outlives what it was made for; a new
        # one costs more than the wait of a token that is already there.
        poller = self._pollers.get(descriptors)
        if poller is None:
            if len(self._pollers) >= KEPT_POLLERS:
                self._pollers.clear()
            poller = self._pollers[descriptors] = _poller_of(descriptors)
        return poller


def wait_readable(sources: Sequence[Pollable], timeout_s: float | None) -> list[int]:
    """Descriptors among `sources` that are readable; empty when time ran out.

    Args:
        sources: Links, sockets, descriptors.
        timeout_s: How long to wait; None is for ever.
    """
    poller = _poller_of([source.fileno() for source in sources])
    endless = timeout_s is None or math.isinf(timeout_s)
    timeout_ms = None if endless else math.ceil(max(0.0, timeout_s or 0.0) * 1000)
    return [descriptor for descriptor, _events in poller.poll(timeout_ms)]


def _poller_of(descriptors: Sequence[int]) -> select.poll:
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return poller
