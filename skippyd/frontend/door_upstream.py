"""One request to a chain's first stage, as a small HTTP client: head, then pieces."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs
import h11
import trio

from skippyd.errors import SkippyError


if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_SECONDS = 5.0
SEND_SECONDS = 30.0
HEAD_MAX_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
DEFAULT_PORT = 80

KEEP_ALIVE_IDLE_SECONDS = 3
KEEP_ALIVE_EVERY_SECONDS = 1
KEEP_ALIVE_MISSED = 4
"""A machine that vanished is noticed within ten seconds, also while nothing is sent."""


class UpstreamUnreachableError(SkippyError):
    """The first stage could not be asked: nothing of the request was done."""


class UpstreamLostError(SkippyError):
    """The first stage went away, or broke the protocol, while it answered."""


@attrs.frozen(kw_only=True)
class UpstreamHead:
    """Status and headers of an answer; names in lower case."""

    status: int
    headers: Mapping[str, str]

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events."""
        kind = self.headers.get("content-type", "")
        return kind.partition(";")[0].strip().lower() == "text/event-stream"


@attrs.define
class UpstreamExchange:
    """One request and its answer; `read_head` once, then `read_piece` to the end."""

    _stream: trio.SocketStream
    _connection: h11.Connection

    async def read_head(self) -> UpstreamHead:
        """Return status and headers.

        Raises:
            UpstreamLostError: The stage went away or sent nonsense.
        """
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                headers = {
                    name.decode("ascii"): value.decode("latin-1")
                    for name, value in event.headers
                }
                return UpstreamHead(status=event.status_code, headers=headers)
            if not isinstance(event, h11.InformationalResponse):
                raise UpstreamLostError("it closed the connection before it answered")

    async def read_piece(self) -> bytes:
        """Return the next bytes of the body as they come; empty at its end.

        Raises:
            UpstreamLostError: The stage went away before the end.
        """
        event = await self._event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            return b""
        raise UpstreamLostError("it closed the connection in the middle of its answer")

    async def read_body(self, limit_bytes: int) -> bytes:
        """Return a body that is not a stream.

        Raises:
            UpstreamLostError: It is too long, or the stage went away.
        """
        body = bytearray()
        while piece := await self.read_piece():
            body += piece
            if len(body) > limit_bytes:
                raise UpstreamLostError(f"its answer is over {limit_bytes} bytes")
        return bytes(body)

    async def aclose(self) -> None:
        """Close the connection: a first stage ends the generation then."""
        await trio.aclose_forcefully(self._stream)

    async def _event(self) -> object:
        while True:
            try:
                event = self._connection.next_event()
                if event is not h11.NEED_DATA:
                    return event
                data = await self._stream.receive_some(READ_BYTES)
                self._connection.receive_data(data)
            except h11.RemoteProtocolError as error:
                raise UpstreamLostError(f"its answer is no HTTP: {error}") from error
            except trio.BrokenResourceError as error:
                cause = error.__cause__ or error
                raise UpstreamLostError(f"its connection broke: {cause}") from error


async def open_upstream(
    base_url: str,
    *,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes = b"",
) -> UpstreamExchange:
    """Connect to a first stage and send it a request.

    Args:
        base_url: `http://HOST:PORT/v1`, as its route says; the path is not used.
        method: Such as `POST`.
        target: Path of the request.
        headers: Headers besides those of the connection.
        body: The whole body.

    Raises:
        UpstreamUnreachableError: It cannot be connected to, or takes no request.
    """
    parts = urlsplit(base_url)
    if parts.hostname is None:
        raise UpstreamUnreachableError(f"{base_url!r} is no address")
    stream = await _connected(parts.hostname, parts.port or DEFAULT_PORT)
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX_BYTES)
    lines = [("host", parts.netloc), ("connection", "close"), *headers.items()]
    if body:
        lines.append(("content-length", str(len(body))))
    request = h11.Request(method=method, target=target, headers=lines)
    data = connection.send(request) or b""
    if body:
        data += connection.send(h11.Data(data=body)) or b""
    data += connection.send(h11.EndOfMessage()) or b""
    try:
        with trio.fail_after(SEND_SECONDS):
            await stream.send_all(data)
    except (trio.BrokenResourceError, trio.TooSlowError) as error:
        await trio.aclose_forcefully(stream)
        raise UpstreamUnreachableError("it does not take the request") from error
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return UpstreamExchange(stream, connection)


async def _connected(host: str, port: int) -> trio.SocketStream:
    try:
        with trio.fail_after(CONNECT_SECONDS):
            stream = await trio.open_tcp_stream(host, port)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UpstreamUnreachableError(f"{host}:{port}: {reason}") from error
    except trio.TooSlowError as error:
        raise UpstreamUnreachableError(
            f"{host}:{port}: no connection within {CONNECT_SECONDS:g} s"
        ) from error
    for option, value in (
        (socket.TCP_KEEPIDLE, KEEP_ALIVE_IDLE_SECONDS),
        (socket.TCP_KEEPINTVL, KEEP_ALIVE_EVERY_SECONDS),
        (socket.TCP_KEEPCNT, KEEP_ALIVE_MISSED),
    ):
        stream.setsockopt(socket.IPPROTO_TCP, option, value)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return stream
