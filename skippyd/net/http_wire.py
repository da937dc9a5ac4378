"""A client's socket: send first, wait only when the kernel says so."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.net.http_values import PeerGoneError


if TYPE_CHECKING:
    from typing import Self


@attrs.define
class ByteWire:
    """A connected, non-blocking TCP socket.

    A token's event is one `send` call of 2 us; trio's own streams cost 20.  Hence
    `send` is not a checkpoint when the kernel takes everything at once.

    Args:
        write_s: A write without any progress for so long ends the connection.
    """

    _socket: socket.socket
    _write_s: float

    @classmethod
    def take(cls, stream: trio.SocketStream, *, write_s: float) -> Self:
        """Take the socket out of a stream that was just accepted."""
        owned = socket.socket(fileno=stream.socket.detach())
        owned.setblocking(False)
        return cls(owned, write_s)

    def peer_address(self) -> str:
        """The client's address without its port.

        Raises:
            PeerGoneError: It already hung up.
        """
        try:
            name: tuple[str, int] = self._socket.getpeername()
        except OSError as error:
            raise PeerGoneError(
                f"client left before its first byte: {error}"
            ) from error
        return name[0]

    async def send(self, data: bytes) -> None:
        """Send everything.

        Raises:
            PeerGoneError: The client closed, or did not read for `write_s`.
        """
        rest = memoryview(data)
        while rest:
            try:
                sent = self._socket.send(rest)
            except BlockingIOError:
                await self._wait_writable()
            except OSError as error:
                raise PeerGoneError(
                    f"client closed while written to: {error}"
                ) from error
            else:
                rest = rest[sent:]

    def send_now(self, data: bytes) -> None:
        """Send what the kernel takes at once; used where waiting is not worth it.

        Raises:
            PeerGoneError: The client closed.
        """
        try:
            self._socket.send(data)
        except OSError as error:
            raise PeerGoneError(f"client closed while written to: {error}") from error

    async def receive(self, max_bytes: int) -> bytes:
        """The next bytes; empty when the client closed its side.

        Raises:
            PeerGoneError: The connection broke.
        """
        # The checkpoint comes first: cancelled after the read, bytes would be lost.
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return self._socket.recv(max_bytes)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(self._socket)
            except OSError as error:
                raise PeerGoneError(f"client connection broke: {error}") from error

    async def wait_readable(self) -> None:
        """Return when bytes, or the end of them, are there."""
        await trio.lowlevel.wait_readable(self._socket)

    async def linger(self) -> None:
        """Say that nothing more comes, and read on until the client is done too.

        Closing over unread bytes would reset the connection, and the client would
        lose the refusal that was just sent.

        Raises:
            PeerGoneError: The client closed.
        """
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise PeerGoneError(f"client closed: {error}") from error
        while await self.receive(65536):
            pass

    def close(self) -> None:
        """Close; waiters in other tasks are woken with an error."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
        self._socket.close()

    async def _wait_writable(self) -> None:
        with trio.move_on_after(self._write_s) as scope:
            await trio.lowlevel.wait_writable(self._socket)
        if scope.cancelled_caught:
            raise PeerGoneError(f"client read nothing for {self._write_s:g} s")
