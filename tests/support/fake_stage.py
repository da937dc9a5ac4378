"""A stage that only pretends: accepts, says scripted bytes, counts what it is sent."""

from __future__ import annotations

import contextlib
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Self

import attrs

from skippyd.core.wire.encode import encode_ready
from skippyd.net.tcp import interrupt


if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

READY = encode_ready()
LOOK_S = 0.1


@attrs.define(eq=False)
class FakeStage:
    """Accepts connections, answers each with bytes and, once spoken to, with more.

    Args:
        port: Where it listens on loopback.
        opening: Sent at once.
        answer: Sent when the first message arrives, then the connection closes; None
            says nothing and keeps it open.
    """

    port: int
    opening: bytes = READY
    answer: bytes | None = None
    hello_bytes: int = 0
    """What a dialler sends before it is told to be ready: the authentication."""
    accepted: int = 0
    _listener: socket.socket = attrs.Factory(socket.socket)
    _open: list[socket.socket] = attrs.Factory(list)
    _ending: threading.Event = attrs.Factory(threading.Event)
    _threads: list[threading.Thread] = attrs.Factory(list)

    def __enter__(self) -> Self:
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self.port))
        self._listener.listen()
        self._listener.settimeout(LOOK_S)
        self._start(self._run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        for connection in self._open:
            interrupt(connection)
        for thread in self._threads:
            thread.join()
        for connection in (self._listener, *self._open):
            connection.close()

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name="fake stage")
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _address = self._listener.accept()
                self.accepted += 1
                self._open.append(connection)
                self._start(partial(self._serve, connection))

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the dialler left, or the test is over
            self._speak(connection)

    def _speak(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        taken = 0
        while taken < self.hello_bytes:
            taken += len(connection.recv(self.hello_bytes - taken))
        connection.sendall(self.opening)
        if self.answer is None:
            return
        connection.recv(65_536)
        connection.sendall(self.answer)
        connection.shutdown(socket.SHUT_WR)
