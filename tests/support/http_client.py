"""A raw HTTP client for tests: sends any bytes, reads responses with h11."""

from __future__ import annotations

import json
import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs
import h11
import trio

from skippyd.frontend.server import serve_openai
from skippyd.net.http_server import HttpServer, serve_http
from skippyd.net.http_values import HttpLimits, HttpResponse
from support.scripted_backend import inline_renderer


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from skippyd.core.telemetry.span import Span
    from skippyd.net.http_connection import HttpHandler, RefusalShape
    from support.scripted_backend import ScriptedBackend


@attrs.frozen
class Reply:
    """A response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        """The body as a JSON object."""
        document: dict[str, object] = json.loads(self.body)
        return document

    def error(self) -> dict[str, object]:
        """The inside of OpenAI's error envelope."""
        error = self.json()["error"]
        assert isinstance(error, dict)
        return error


@attrs.define
class RawClient:
    """One connection."""

    stream: trio.SocketStream
    _parser: h11.Connection = attrs.field(
        factory=lambda: h11.Connection(h11.CLIENT, max_incomplete_event_size=2**20)
    )

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.stream.send_all(data)

    async def read_until(self, marker: bytes) -> bytes:
        """Raw bytes up to and with a marker."""
        seen = b""
        while marker not in seen:
            piece = await self.stream.receive_some(4096)
            assert piece, f"closed before {marker!r}: {seen!r}"
            seen += piece
        return seen

    async def read_to_end(self) -> bytes:
        """Raw bytes until the server closes; a reset counts as a close."""
        seen = b""
        try:
            while piece := await self.stream.receive_some(65536):
                seen += piece
        except trio.BrokenResourceError:
            return seen
        return seen

    async def reply(self, *, method: str = "GET") -> Reply:
        """The next complete response."""
        if self._parser.our_state is h11.DONE:
            self._parser.start_next_cycle()
        self._parser.send(
            h11.Request(method=method, target="/", headers=[("host", "localhost")])
        )
        self._parser.send(h11.EndOfMessage())
        status, headers, body = 0, {}, b""
        while not isinstance(event := self._parser.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                self._parser.receive_data(await self.stream.receive_some(65536))
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {n.decode(): v.decode() for n, v in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
        return Reply(status, headers, body)

    async def get(self, path: str, *headers: str) -> Reply:
        """GET a path."""
        await self.send(request_bytes("GET", path, *headers))
        return await self.reply()

    async def post(self, path: str, body: object, *headers: str) -> Reply:
        """POST a JSON body."""
        await self.send(json_request(path, body, *headers))
        return await self.reply(method="POST")


def request_bytes(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    """A request with a Host header, and a length when there is a body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def json_request(path: str, body: object, *headers: str) -> bytes:
    """A POST of a JSON body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request_bytes(
        "POST", path, "Content-Type: application/json", *headers, body=data
    )


def plain_shape(status: int, message: str) -> HttpResponse:
    """Refusals as plain text, for tests below the OpenAI surface."""
    return HttpResponse(status, message.encode())


@attrs.frozen
class RunningServer:
    """A server under test."""

    server: HttpServer
    port: int
    nursery: trio.Nursery
    _clients: list[RawClient] = attrs.field(factory=list, init=False)

    async def connect(self, *, receive_buffer_bytes: int | None = None) -> RawClient:
        """A new connection; `close_clients` closes it at the latest."""
        raw = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer_bytes is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        await raw.connect(("127.0.0.1", self.port))
        client = RawClient(trio.SocketStream(raw))
        self._clients.append(client)
        return client

    def close_clients(self) -> None:
        """Close what the test left open."""
        for client in self._clients:
            client.stream.socket.close()


async def open_listener(host: str = "127.0.0.1") -> trio.SocketListener:
    """A listener on a free port."""
    return (await trio.open_tcp_listeners(0, host=host))[0]


def port_of(listener: trio.SocketListener) -> int:
    """The port a listener got."""
    port: int = listener.socket.getsockname()[1]
    return port


@asynccontextmanager
async def running_http(
    handler: HttpHandler,
    limits: HttpLimits | None = None,
    *,
    shape: RefusalShape = plain_shape,
) -> AsyncIterator[RunningServer]:
    """Serve a handler on loopback; everything is cancelled at the end."""
    listener = await open_listener()
    async with trio.open_nursery() as nursery:
        server: HttpServer = await nursery.start(
            partial(
                serve_http,
                [listener],
                handler,
                HttpLimits() if limits is None else limits,
                refusal_shape=shape,
            )
        )
        running = RunningServer(server, port_of(listener), nursery)
        try:
            yield running
        finally:
            running.close_clients()
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def running_openai(
    backend: ScriptedBackend,
    *,
    limits: HttpLimits | None = None,
    token_deadline_s: float = 30.0,
    ping_every_s: float = 15.0,
    record: Callable[[Span], None] = lambda _span: None,
) -> AsyncIterator[RunningServer]:
    """Serve a scripted backend on loopback, templates rendered inline."""
    listener = await open_listener()
    async with trio.open_nursery() as nursery:
        server: HttpServer = await nursery.start(
            partial(
                serve_openai,
                [listener],
                backend,
                limits=limits,
                renderer=inline_renderer(),
                clock_unix_ms=lambda: 1_700_000_000_123,
                token_deadline_s=token_deadline_s,
                ping_every_s=ping_every_s,
                record=record,
            )
        )
        running = RunningServer(server, port_of(listener), nursery)
        try:
            yield running
        finally:
            running.close_clients()
            nursery.cancel_scope.cancel()
