"""The line between a stage process and whoever started it.

One inherited socket carries JSON lines both ways: progress and readiness to the
parent, `status` and `stop` from it. End of file means that the parent is gone: the
stage ends itself. The kernel's parent-death signal covers a stage that hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from typing import TYPE_CHECKING

import trio

from skippyd.errors import UsageError
from skippyd.stage.waiting import wait_readable


if TYPE_CHECKING:
    from collections.abc import Callable

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
        with contextlib.suppress(OSError):
            self._socket.sendall(line.encode())

    def close(self) -> None:
        """Close the channel; the parent takes that for the end of this process."""
        self._socket.close()

    async def serve(
        self, answer_status: Callable[[], dict[str, object]], stop: Callable[[], None]
    ) -> None:
        """Answer the parent until it is gone; then, or when told, call `stop`."""
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
                    await trio.to_thread.run_sync(self._tell_status, answer_status)
        stop()

    def _tell_status(self, answer_status: Callable[[], dict[str, object]]) -> None:
        self.tell("status", **answer_status())
