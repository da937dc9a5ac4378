"""Blocking TCP between stages: dialling on the right interface, sending, closing.

Lanes own blocking sockets: trio streams cost seven times as much a hop. Every wait
here has a deadline; a timeout of the socket surfaces as `TimeoutError`. What a lane
does to its connection works on a plain one and on one under TLS alike.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from typing import TYPE_CHECKING, TypeAlias

import attrs


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skippyd.net.tls_socket import TlsSocket

    StageSocket: TypeAlias = socket.socket | TlsSocket

RECEIVE_BYTES = 65_536
"""Asked for at a time: above malloc's threshold each call maps and unmaps pages, which
costs several times more than the call (measured: 86 us against 15 for 2400 bytes)."""
NO_TLS_ALERT = bytes.fromhex("15030300020246")
"""TLS's own word, not encrypted, for "we do not speak the same version" (RFC 8446, 6)."""

LINGER_SECONDS = 1.0
DRAIN_BYTES = 65_536
USER_TIMEOUT_MS = 30_000
KEEPALIVE_IDLE_S = 15
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_PROBES = 3


@attrs.frozen
class Address:
    """A host and a port to dial.

    Args:
        host: Name or numeric address.
        port: TCP port.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return (
            f"[{self.host}]:{self.port}"
            if ":" in self.host
            else f"{self.host}:{self.port}"
        )


def dial(
    address: Address, *, source_host: str | None, timeout_s: float
) -> socket.socket:
    """Connect, on the interface that `source_host` names if it names one.

    The route the system picks is tried first; if it leaves from another address than
    asked, the connection is made again bound to that address.

    Args:
        address: Where to connect to.
        source_host: The own address to leave from; None or unspecified is any.
        timeout_s: Deadline of each attempt.

    Raises:
        OSError: Nothing answered, or the address cannot be left from.
    """
    target = (address.host, address.port)
    connection = _connected(target, None, timeout_s)
    if source_host is None or _is_unspecified(source_host):
        return connection
    if connection.getsockname()[0] == source_host:
        return connection
    connection.close()
    return _connected(target, (source_host, 0), timeout_s)


def _connected(
    target: tuple[str, int], source: tuple[str, int] | None, timeout_s: float
) -> socket.socket:
    connection = socket.create_connection(target, timeout_s, source)
    # A port of the ephemeral range that nobody listens on can be met by itself.
    if connection.getsockname() == connection.getpeername():
        connection.close()
        raise ConnectionRefusedError(
            errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)
        )
    return connection


def prepare(connection: socket.socket, *, io_timeout_s: float) -> None:
    """Set up a lane's socket: no Nagle, dead peers noticed, bounded reads and writes.

    `SO_RCVTIMEO` instead of `settimeout`: 0.1 us a call against 2.3.
    """
    connection.setblocking(True)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S),
        (socket.TCP_KEEPCNT, KEEPALIVE_PROBES),
        (socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
    seconds = int(io_timeout_s)
    limit = struct.pack("ll", seconds, int((io_timeout_s - seconds) * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def send_buffers(
    connection: StageSocket, buffers: Sequence[bytes | bytearray | memoryview]
) -> None:
    """Send all buffers of bytes in one scatter-gather call, going on when it was short.

    Under TLS they are joined: each write makes records of its own.

    Raises:
        TimeoutError: The peer took nothing for as long as the socket allows.
        OSError: The connection broke.
    """
    if not isinstance(connection, socket.socket):
        connection.send(buffers)
        return
    sent = _send_some(connection, buffers)
    if sent == sum(map(len, buffers)):
        return
    views = rest_of(buffers, sent)
    while views:
        views = rest_of(views, _send_some(connection, views))


def rest_of(
    buffers: Sequence[bytes | bytearray | memoryview], sent_bytes: int
) -> list[memoryview]:
    """What is left of buffers of bytes when so many of them are sent."""
    views = [memoryview(buffer) for buffer in buffers]
    while views and sent_bytes >= len(views[0]):
        sent_bytes -= len(views.pop(0))
    if views and sent_bytes:
        views[0] = views[0][sent_bytes:]
    return views


def receive(connection: StageSocket, size: int) -> bytes | None:
    """Receive up to `size` bytes; under TLS, all there is of a few records.

    Returns:
        The bytes; empty at the end of the stream, None under TLS when what has arrived
        says nothing yet.

    Raises:
        TimeoutError: Nothing came for as long as the socket allows.
        OSError: The connection broke.
    """
    if not isinstance(connection, socket.socket):
        return connection.receive()
    try:
        return connection.recv(size)
    except BlockingIOError:
        raise TimeoutError("the peer sent nothing more") from None


def interrupt(connection: StageSocket) -> None:
    """Wake whatever thread waits on this socket; harmless when it is closed."""
    with contextlib.suppress(OSError):
        plain_socket(connection).shutdown(socket.SHUT_RDWR)


def close_after_last_words(stage_socket: StageSocket) -> None:
    """Close so that what was sent last still arrives.

    Closing with unread bytes resets the connection, and a reset can overtake the
    failure text: read on for a moment, bounded in time.
    """
    connection = plain_socket(stage_socket)
    deadline = time.monotonic() + LINGER_SECONDS
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(LINGER_SECONDS)
        while connection.recv(DRAIN_BYTES) and time.monotonic() < deadline:
            pass
    connection.close()


def close_all(connections: Iterable[socket.socket | None]) -> None:
    """Close what is open."""
    for connection in connections:
        if connection is not None:
            connection.close()


def plain_socket(connection: StageSocket) -> socket.socket:
    """The socket itself, under whatever it carries."""
    if isinstance(connection, socket.socket):
        return connection
    return connection.plain


def _send_some(
    connection: socket.socket, buffers: Sequence[bytes | bytearray | memoryview]
) -> int:
    try:
        return connection.sendmsg(buffers)
    except BlockingIOError:
        raise TimeoutError("the peer stopped reading") from None


def _is_unspecified(host: str) -> bool:
    return host in {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound
