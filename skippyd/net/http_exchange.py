"""One response: complete, or written piece by piece."""

from __future__ import annotations

from email.utils import formatdate

import attrs
import h11
import trio

from skippyd.net.http_values import HttpResponse  # noqa: TC001
from skippyd.net.http_wire import ByteWire  # noqa: TC001


@attrs.define
class StreamPlan:
    """A stream that was announced; its head goes out with the first bytes.

    Args:
        ping: Bytes that mean nothing, sent when nothing else was for a while.
        ping_every_s: How long that is.
    """

    headers: tuple[tuple[str, str], ...]
    ping: bytes
    ping_every_s: float


@attrs.define
class Exchange:
    """How a handler answers one request.

    Either `respond` once, or `plan_stream`, then `write` any number of times and
    `end_stream`.  A handler that planned a stream and has written nothing yet may
    still `respond`: the status is open until the first byte.

    All writing ends with `PeerGoneError` when the client is gone.
    """

    _wire: ByteWire
    _connection: h11.Connection
    _method: str = attrs.field(kw_only=True)
    _is_last: bool = attrs.field(kw_only=True)
    is_begun: bool = attrs.field(default=False, init=False)
    _plan: StreamPlan | None = attrs.field(default=None, init=False)
    _planned: trio.Event = attrs.field(factory=trio.Event, init=False)
    _lock: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _last_write_s: float = attrs.field(default=0.0, init=False)
    _is_chunked: bool = attrs.field(default=False, init=False)

    async def respond(self, response: HttpResponse) -> None:
        """Send a complete response (without its body when HEAD was asked)."""
        self._plan = None
        async with self._lock:
            assert not self.is_begun, "a response was already begun"
            length = ("content-length", str(len(response.body)))
            data = self._head(response.status, (*response.headers, length))
            if response.body and self._method != "HEAD":
                data += self._connection.send(h11.Data(data=response.body)) or b""
            data += self._connection.send(h11.EndOfMessage()) or b""
            await self._wire.send(data)

    def plan_stream(
        self,
        headers: tuple[tuple[str, str], ...],
        *,
        ping: bytes,
        ping_every_s: float,
    ) -> None:
        """Announce a stream with status 200; nothing is sent yet."""
        self._plan = StreamPlan(headers, ping, ping_every_s)
        self._last_write_s = trio.current_time()
        self._planned.set()

    async def write(self, data: bytes) -> None:
        """Send a piece of the planned stream, with the head before the first."""
        try:
            self._lock.acquire_nowait()
        except trio.WouldBlock:
            # A ping is being sent.  Waiting is rare; the usual way must not cost
            # a checkpoint a token.
            await self._lock.acquire()
        try:
            await self._write_locked(data)
        finally:
            self._lock.release()

    async def end_stream(self) -> None:
        """End the planned stream."""
        async with self._lock:
            await self._write_locked(b"")
            self._plan = None
            await self._wire.send(self._connection.send(h11.EndOfMessage()) or b"")

    async def send_pings(self) -> None:
        """Ping while the stream is silent; runs until cancelled or ended."""
        await self._planned.wait()
        while (plan := self._plan) is not None:
            await trio.sleep_until(self._last_write_s + plan.ping_every_s)
            async with self._lock:
                is_silent = self._silent_for_s() >= plan.ping_every_s
                if self._plan is not None and is_silent:
                    await self._write_locked(plan.ping)

    def _silent_for_s(self) -> float:
        return trio.current_time() - self._last_write_s

    async def _write_locked(self, data: bytes) -> None:
        assert self._plan is not None, "no stream is planned"
        head = b""
        if not self.is_begun:
            head = self._head(200, self._plan.headers)
            # h11 chose: chunks for HTTP/1.1, the end of the connection for 1.0.
            self._is_chunked = self._connection.their_http_version == b"1.1"
        self._last_write_s = trio.current_time()
        if data and self._is_chunked:
            # Framed by hand: through h11 it costs five times as much.
            data = b"%x\r\n%b\r\n" % (len(data), data)
        await self._wire.send(head + data)

    def _head(self, status: int, headers: tuple[tuple[str, str], ...]) -> bytes:
        self.is_begun = True
        lines = [("date", formatdate(usegmt=True)), *headers]
        if self._is_last:
            lines.append(("connection", "close"))
        response = h11.Response(status_code=status, headers=lines)
        return self._connection.send(response) or b""
