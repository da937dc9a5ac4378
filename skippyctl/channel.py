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

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Message,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from skippyctl.words import clean
from skippyd.errors import ExitCode, SkippyError
from skippyd.units import MIB


if TYPE_CHECKING:
    from pathlib import Path

    from wsproto.events import Event

PATIENCE_SECONDS = 2.0
"""How long a daemon that is just starting is waited for."""

RETRY_SECONDS = 0.05
HANDSHAKE_SECONDS = 5.0
MESSAGE_MAX_CHARACTERS = 2 * MIB
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
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._messages: deque[str] = deque()
        self._parts: list[str] = []
        self._is_open = False
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
        self._write(self._protocol.send(TextMessage(text)))

    def ping(self) -> None:
        """Make a living peer say something."""
        self._write(self._protocol.send(Ping()))

    def receive(self, timeout_s: float) -> str | None:
        """Wait for a message; None for a sign of life that is no message.

        Raises:
            TimeoutError: Nothing came.
            DaemonUnreachableError: Nothing will come any more.
        """
        if not self._messages:
            self._read_some(timeout_s)
        return self._messages.popleft() if self._messages else None

    def lost(self, reason: str) -> DaemonUnreachableError:
        """The error that says why this channel is of no use any more."""
        return DaemonUnreachableError(
            f"lost the daemon at {self._path}: {clean(reason)}; its log says more"
        )

    def _shake_hands(self) -> None:
        self._write(self._protocol.send(Request(host="localhost", target=self._target)))
        deadline = time.monotonic() + HANDSHAKE_SECONDS
        try:
            while not self._is_open:
                self._read_some(deadline - time.monotonic())
        except TimeoutError as error:
            raise self.lost(
                f"no answer to the handshake within {HANDSHAKE_SECONDS:g} s"
            ) from error

    def _read_some(self, timeout_s: float) -> None:
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
        try:
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                self._take(event)
        except (RemoteProtocolError, LocalProtocolError) as error:
            raise self.lost(f"it does not speak as skippyd does: {error}") from error

    def _take(self, event: Event) -> None:
        match event:
            case AcceptConnection():
                self._is_open = True
            case TextMessage():
                self._take_text(event)
            case Ping():
                self._write(self._protocol.send(event.response()))
            case CloseConnection(code=code, reason=reason):
                raise self.lost(reason or f"it closed the connection ({code})")
            case RejectConnection(status_code=status):
                raise self.lost(f"it answered {status} to {self._target}")
            case Message():
                raise self.lost("it sent bytes where texts are due")
            case _:
                # A pong, or the body of a refusal: signs of life.
                return

    def _take_text(self, message: TextMessage) -> None:
        self._parts.append(message.data)
        if sum(map(len, self._parts)) > MESSAGE_MAX_CHARACTERS:
            raise self.lost("its message is too long")
        if message.message_finished:
            self._messages.append("".join(self._parts))
            self._parts.clear()

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
