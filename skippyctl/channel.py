"""A blocking WebSocket of text messages on a Unix socket, every wait bounded.

No trio here: a command asks one thing at a time, and importing an event loop costs more
than asking.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections import deque
from typing import TYPE_CHECKING

from skippyctl.frames import (
    FrameError,
    FrameReader,
    Opcode,
    check_response,
    client_frame,
    request_head,
)
from skippyctl.words import clean
from skippyd.errors import ExitCode, SkippyError


if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_SECONDS = 2.0
"""How long a daemon that is just starting is waited for."""

RETRY_SECONDS = 0.05
HANDSHAKE_SECONDS = 5.0
RECEIVE_BYTES = 65_536
_NOT_THERE_YET = frozenset({errno.ENOENT, errno.ECONNREFUSED})


class DaemonUnreachableError(SkippyError):
    """Nothing answers, or it stopped answering."""

    exit_code = ExitCode.UNREACHABLE


class SocketDeniedError(SkippyError):
    """This user may not open the socket."""

    exit_code = ExitCode.PERMISSION


class BlockingChannel:
    """An open channel.

    Args:
        path: The socket to connect to.
        target: The path to ask for.
        patience_s: How long to wait for a daemon that is starting.

    Raises:
        DaemonUnreachableError: Nothing answers, or it is no such server.
        SocketDeniedError: This user may not open the socket.
    """

    def __init__(
        self, path: Path, target: str, *, patience_s: float = PATIENCE_SECONDS
    ) -> None:
        self._path = path
        self._target = target
        self._frames = FrameReader()
        self._messages: deque[str] = deque()
        self._socket = _connect(path, patience_s)
        try:
            self._shake_hands()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close; the daemon notices at once."""
        self._socket.close()

    def send(self, text: str) -> None:
        """Send one message."""
        self._send(Opcode.TEXT, text.encode())

    def ping(self) -> None:
        """Make a living peer say something."""
        self._send(Opcode.PING, b"")

    def receive(self, timeout_s: float) -> str | None:
        """Wait for a message; None for a sign of life that is no message.

        Raises:
            TimeoutError: Nothing came.
            DaemonUnreachableError: Nothing will come any more.
        """
        # The first message may have come along with the answer to the handshake.
        self._take_all()
        if not self._messages:
            self._frames.feed(self._bytes(timeout_s))
            self._take_all()
        return self._messages.popleft() if self._messages else None

    def lost(self, reason: str) -> DaemonUnreachableError:
        """The error that says why this channel is of no use any more."""
        return DaemonUnreachableError(
            f"lost the daemon at {self._path}: {clean(reason)}; its log says more"
        )

    def _shake_hands(self) -> None:
        key = os.urandom(16)
        self._write(request_head(self._target, key))
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        try:
            while (head := self._frames.head()) is None:
                self._frames.feed(self._bytes(deadline - time.monotonic()))
            check_response(head, key)
        except TimeoutError as error:
            raise self.lost(
                f"no answer to the handshake within {HANDSHAKE_SECONDS:g} s"
            ) from error
        except FrameError as error:
            raise self.lost(str(error)) from error

    def _take_all(self) -> None:
        try:
            while (message := self._frames.next_message()) is not None:
                self._take(*message)
        except (FrameError, UnicodeDecodeError) as error:
            raise self.lost(f"it does not speak as skippyd does: {error}") from error

    def _bytes(self, timeout_s: float) -> bytes:
        if timeout_s <= 0:
            raise TimeoutError
        self._socket.settimeout(timeout_s)
        try:
            data = self._socket.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise self.lost(error.strerror or str(error)) from error
        if not data:
            raise self.lost("it ended the connection")
        return data

    def _take(self, opcode: Opcode, payload: bytes) -> None:
        match opcode:
            case Opcode.TEXT:
                self._messages.append(payload.decode())
            case Opcode.PING:
                self._send(Opcode.PONG, payload)
            case Opcode.CLOSE:
                reason = payload[2:].decode(errors="replace")
                raise self.lost(reason or "it closed the connection")
            case _:
                # A pong: a sign of life.
                return

    def _send(self, opcode: Opcode, payload: bytes) -> None:
        self._write(client_frame(opcode, payload, os.urandom(4)))

    def _write(self, data: bytes) -> None:
        self._socket.settimeout(HANDSHAKE_SECONDS)
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self.lost(
                error.strerror or str(error) or "it does not read"
            ) from error


def _connect(path: Path, patience_s: float) -> socket.socket:
    deadline = time.monotonic() + patience_s
    while True:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connecting.settimeout(HANDSHAKE_SECONDS)
        try:
            connecting.connect(os.fspath(path))
        except OSError as error:
            connecting.close()
            is_starting = error.errno in _NOT_THERE_YET
            if not is_starting or time.monotonic() >= deadline:
                raise _unreachable(path, error) from error
            time.sleep(RETRY_SECONDS)
        else:
            return connecting


def _unreachable(path: Path, error: OSError) -> SkippyError:
    if error.errno in {errno.EACCES, errno.EPERM}:
        return SocketDeniedError(
            f"cannot reach {path}: permission denied; join group skippy or use sudo"
        )
    reason = {
        errno.ENOENT: "there is no such socket",
        errno.ECONNREFUSED: "nothing listens on it",
    }.get(error.errno or 0, error.strerror or str(error))
    return DaemonUnreachableError(
        f"cannot reach {path}: {reason}; is skippyd running? "
        "(systemctl status skippyd, or name another socket with --socket)"
    )
