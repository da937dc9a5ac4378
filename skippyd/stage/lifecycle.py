"""The line between a stage process and whoever started it.

One inherited socket carries JSON lines both ways: progress and readiness to the
parent; `status` (all counters), `glance` (what a daemon looks at every second) and
`stop` from it. End of file means that the parent is gone: the
stage ends itself. The kernel's parent-death signal covers a stage that hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from typing import TYPE_CHECKING

import trio

from skippyd.errors import UsageError
from skippyd.stage.waiting import wait_readable


if TYPE_CHECKING:
    from collections.abc import Callable

    Answer = Callable[[], "list[tuple[str, dict[str, object]]]"]
    """Events that answer a word, each with its fields."""

RECEIVE_BYTES = 4096
LINE_MAX_BYTES = 65_536
SEND_SECONDS = 5.0


class LifecycleChannel:
    """The child's end.

    Args:
        descriptor: The inherited socket.

    Raises:
        UsageError: The descriptor is no socket.
    """

    def __init__(self, descriptor: int) -> None:
        try:
            self._socket = socket.socket(fileno=descriptor)
        except OSError as error:
            raise UsageError(
                f"--lifecycle-fd {descriptor} is no inherited socket: {error.strerror}"
            ) from error
        os.set_inheritable(descriptor, False)
        self._socket.settimeout(SEND_SECONDS)
        self._sending = threading.Lock()

    @property
    def is_parent_gone(self) -> bool:
        """Whether the other end is closed already."""
        if not wait_readable([self._socket], 0):
            return False
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def tell(self, event: str, **fields: object) -> None:
        """Send one event; from any thread. A parent that is gone is no error."""
        line = json.dumps({"event": event, **fields}) + "\n"
        with contextlib.suppress(OSError), self._sending:
            self._socket.sendall(line.encode())

    def close(self) -> None:
        """Close the channel; the parent takes that for the end of this process."""
        self._socket.close()

    async def serve(
        self, *, status: Answer, glance: Answer, stop: Callable[[], None]
    ) -> None:
        """Answer the parent until it is gone; then, or when told, call `stop`.

        Args:
            status: Answers the word of that name; called in a thread.
            glance: Likewise.
            stop: Begins the end of this process.
        """
        reading = trio.socket.from_stdlib_socket(self._socket.dup())
        buffered = b""
        with reading:
            while len(buffered) <= LINE_MAX_BYTES:
                try:
                    data = await reading.recv(RECEIVE_BYTES)
                except OSError:
                    break
                if not data:
                    break
                *lines, buffered = (buffered + data).split(b"\n")
                for line in lines:
                    if line == b"stop":
                        stop()
                        return
                    answer = glance if line == b"glance" else status
                    await trio.to_thread.run_sync(self._tell_all, answer)
        stop()

    def _tell_all(self, answer: Answer) -> None:
        for event, fields in answer():
            self.tell(event, **fields)
