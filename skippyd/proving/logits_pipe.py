"""Logits of every predicted row, from the final stage to whoever compares them.

A record is u64 position, u32 count, f32 values, little-endian. A reader thread empties
the pipe all along: a full one would stall the stage.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from typing import TYPE_CHECKING, Self

import numpy as np

from skippyd.errors import SkippyError


if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import BinaryIO

    Row = np.ndarray[tuple[int], np.dtype[np.float32]]

HEAD = struct.Struct("<QI")
PIPE_BYTES = 1 << 20
VALUES_MAX = 1 << 24
END_SECONDS = 10.0


class LogitsWriter:
    """The final stage's end.

    Args:
        descriptor: The inherited pipe.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, position: int, logits: Row) -> None:
        """Write one record; blocks until the reader has room."""
        views = [memoryview(HEAD.pack(position, len(logits))), logits.data.cast("B")]
        while views:
            written = os.writev(self._descriptor, views)
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if views:
                views[0] = views[0][written:]


class LogitsReader:
    """The comparer's end: records by position, gathered by a thread.

    A position that is predicted again (after a rewind, or by the next request) replaces
    what was there.
    """

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        with contextlib.suppress(PermissionError):  # a small pipe is only slower
            fcntl.fcntl(self._read_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        os.set_inheritable(self.write_end, True)
        self._rows: dict[int, Row] = {}
        self._fault: str | None = None
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._read_all, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the reading; harmless when repeated."""
        self.close_write_end()
        # Every writer has been ended by now; one that was not must not hang us too.
        self._thread.join(END_SECONDS)

    def close_write_end(self) -> None:
        """Drop our copy of the end that the stage writes to."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def take(self, positions: Sequence[int], timeout_s: float) -> list[Row]:
        """Rows of these positions, waited for; everything read so far is forgotten.

        Raises:
            SkippyError: Some did not come; at once when none can come any more.
        """
        with self._arrived:
            self._arrived.wait_for(
                lambda: self._fault is not None or not self._missing(positions),
                timeout_s,
            )
            if missing := self._missing(positions):
                raise SkippyError(
                    f"no logits came for positions {missing[:5]}: "
                    + (self._fault or f"none within {timeout_s:g} s")
                )
            rows = [self._rows[position] for position in positions]
            self._rows.clear()
            return rows

    def clear(self) -> None:
        """Forget what was read, such as the canary's row."""
        with self._arrived:
            self._rows.clear()

    def _read_all(self) -> None:
        with os.fdopen(self._read_end, "rb", buffering=PIPE_BYTES) as pipe:
            fault = self._read_records(pipe)
        with self._arrived:
            self._fault = fault
            self._arrived.notify_all()

    def _read_records(self, pipe: BinaryIO) -> str:
        """Take records in until there are no more; returns why."""
        while len(head := pipe.read(HEAD.size)) == HEAD.size:
            position, count = HEAD.unpack(head)
            if count > VALUES_MAX:
                return f"a record claims {count} values"
            data = pipe.read(4 * count)
            if len(data) < 4 * count:
                return "the writer ended within a record"
            with self._arrived:
                self._rows[position] = np.frombuffer(data, np.float32)
                self._arrived.notify_all()
        return "the writer ended within a record" if head else "the writer is gone"

    def _missing(self, positions: Sequence[int]) -> list[int]:
        return [position for position in positions if position not in self._rows]
