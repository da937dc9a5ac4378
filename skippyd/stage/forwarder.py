"""The background writer of prefill frames: the next chunk computes while one drains.

A thread of its own because a socket write blocks; it holds at most `max_inflight`
frames, and every synchronous write of the lane flushes it first.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from skippyd.core.wire.messages import StageMessage
    from skippyd.stage.links import ReplyLink

JOIN_SECONDS = 35.0  # a write may stall for its 30 s deadline


class Forwarder:
    """Writes messages to one link in order, in its own thread.

    Args:
        link: Where to; only this thread writes to it until `flush` returned.
        capacity: Frames that may wait.
    """

    def __init__(self, link: ReplyLink, capacity: int) -> None:
        self._link = link
        self._queue: queue.Queue[StageMessage | None] = queue.Queue(max(capacity, 1))
        self._error: OSError | None = None
        self._thread = threading.Thread(
            target=self._write_all, name="forwarder", daemon=True
        )
        self._thread.start()

    def put(self, message: StageMessage) -> None:
        """Hand a frame over; blocks while the queue is full.

        Raises:
            StageFailureError: An earlier write failed.
        """
        self._check()
        self._queue.put(message)

    def flush(self) -> None:
        """Wait until everything handed over is written.

        Raises:
            StageFailureError: A write failed.
        """
        self._queue.join()
        self._check()

    def close(self) -> None:
        """End the thread; the link must have been interrupted if a write may hang."""
        self._queue.put(None)
        self._thread.join(JOIN_SECONDS)

    def _write_all(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                if self._error is None:
                    self._link.write(message)
            except OSError as error:
                self._error = error
            finally:
                self._queue.task_done()

    def _check(self) -> None:
        if self._error is not None:
            raise self._link.write_failure(self._error) from self._error
