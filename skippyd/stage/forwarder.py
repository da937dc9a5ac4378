"""The background writer of prefill frames: the next chunk computes while one drains.

A thread of its own because a socket write blocks; it holds at most `capacity` frames,
and every synchronous write of the lane flushes it first.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import TYPE_CHECKING

from skippyd.errors import FailureCode, StageFailureError
from skippyd.stage.waiting import WakeDescriptor


if TYPE_CHECKING:
    from skippyd.core.wire.messages import StageMessage
    from skippyd.stage.links import ReplyLink
    from skippyd.stage.waiting import Waiter

JOIN_SECONDS = 35.0  # a write may stall for its 30 s deadline

logger = logging.getLogger("skippyd.stage")


class Forwarder:
    """Writes messages to one link in order, in its own thread.

    Args:
        link: Where to; only this thread writes to it until `flush` returned.
        capacity: Frames that may wait.
        waiter: Where the lane's thread waits for room.
        write_s: How long the socket lets one write stall.
    """

    def __init__(
        self, link: ReplyLink, capacity: int, *, waiter: Waiter, write_s: float
    ) -> None:
        self._link = link
        self._capacity = max(capacity, 1)
        self._waiter = waiter
        self._stall_s = write_s * (self._capacity + 1)
        self._queue: queue.SimpleQueue[StageMessage | None] = queue.SimpleQueue()
        self._handed_over = 0
        self._written = 0
        self._progress = WakeDescriptor()
        self._error: OSError | None = None
        self._thread = threading.Thread(
            target=self._write_all, name="forwarder", daemon=True
        )
        self._thread.start()

    def put(self, message: StageMessage) -> None:
        """Hand a frame over; waits while too many are under way.

        Raises:
            StageFailureError: An earlier write failed, or the peer stopped reading.
        """
        self._wait_for_fewer_than(self._capacity)
        self._handed_over += 1
        self._queue.put(message)

    def flush(self) -> None:
        """Wait until everything handed over is written.

        Raises:
            StageFailureError: A write failed, or the peer stopped reading.
        """
        if self._error is not None or self._handed_over != self._written:
            self._wait_for_fewer_than(1)

    def close(self) -> None:
        """End the thread; the link must have been interrupted if a write may hang."""
        self._queue.put(None)
        self._thread.join(JOIN_SECONDS)
        if self._thread.is_alive():
            logger.error(
                "the writer to %s did not end within %g s",
                self._link.peer_name,
                JOIN_SECONDS,
            )
            return
        self._progress.close()

    def _wait_for_fewer_than(self, limit: int) -> None:
        until = time.monotonic() + self._stall_s
        while self._error is None and self._handed_over - self._written >= limit:
            self._waiter.wait([self._progress], until)
            self._progress.clear()
            if time.monotonic() >= until:
                raise StageFailureError(
                    FailureCode.TIMEOUT,
                    self._link.peer_index,
                    f"{self._link.peer_name} did not take its prefill frames within "
                    f"{self._stall_s:g} s; it hangs or is overloaded",
                )
        if self._error is not None:
            raise self._link.write_failure(self._error) from self._error

    def _write_all(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                if self._error is None:
                    self._link.write(message)
            except OSError as error:
                self._error = error
            self._written += 1
            self._progress.wake()
