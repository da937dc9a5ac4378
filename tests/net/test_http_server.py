"""The HTTP server on real sockets, with handlers of the tests' own."""

from __future__ import annotations

import socket
import struct
from functools import partial
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.net.http_reader import is_loopback_host
from skippyd.net.http_server import HttpServer, serve_http
from skippyd.net.http_values import HttpLimits, HttpRequest, HttpResponse
from support.http_client import (
    open_listener,
    plain_shape,
    port_of,
    request_bytes,
    running_http,
)


if TYPE_CHECKING:
    from skippyd.net.http_exchange import Exchange


async def echo(request: HttpRequest, exchange: Exchange) -> None:
    text = f"{request.method} {request.path} {len(request.body)}"
    await exchange.respond(HttpResponse(200, text.encode()))


@attrs.define
class Waiting:
    """A handler that never answers; tells when it began and how it ended."""

    begun: trio.Event = attrs.field(factory=trio.Event)
    ended: trio.Event = attrs.field(factory=trio.Event)

    async def __call__(self, request: HttpRequest, exchange: Exchange) -> None:
        self.begun.set()
        try:
            await trio.sleep_forever()
        finally:
            self.ended.set()


@attrs.define
class Flooding:
    """A handler that writes a stream without end."""

    ended: trio.Event = attrs.field(factory=trio.Event)
    written_bytes: int = 0

    async def __call__(self, request: HttpRequest, exchange: Exchange) -> None:
        exchange.plan_stream((), ping=b".", ping_every_s=60)
        try:
            while True:
                await exchange.write(b"x" * 1024)
                self.written_bytes += 1024
                await trio.lowlevel.checkpoint()
        finally:
            self.ended.set()


async def test_requests_follow_each_other_on_one_connection() -> None:
    async with running_http(echo) as running:
        client = await running.connect()
        assert (await client.get("/a?b=c")).body == b"GET /a 0"
        assert (await client.post("/d", {})).body == b"POST /d 2"
        assert running.server.connection_count == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running_http(echo) as running:
        client = await running.connect()
        await client.send(request_bytes("GET", "/1") + request_bytes("GET", "/2"))
        assert (await client.reply()).body == b"GET /1 0"
        assert (await client.reply()).body == b"GET /2 0"


async def test_head_gives_the_length_without_the_body() -> None:
    async with running_http(echo) as running:
        client = await running.connect()
        await client.send(request_bytes("HEAD", "/a"))
        reply = await client.reply(method="HEAD")
        assert (reply.status, reply.headers["content-length"]) == (200, "9")
        assert (await client.get("/b")).body == b"GET /b 0"


async def test_a_client_that_waits_for_100_is_told_to_go_on() -> None:
    async with running_http(echo) as running:
        client = await running.connect()
        await client.send(
            b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert b"HTTP/1.1 100 " in await client.read_until(b"\r\n\r\n")
        await client.send(b"abc")
        assert (await client.reply(method="POST")).body == b"POST /a 3"


async def test_a_body_that_is_announced_too_large_is_refused_unread() -> None:
    async with running_http(echo, HttpLimits(body_bytes=10)) as running:
        client = await running.connect()
        await client.send(
            b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        reply = await client.reply(method="POST")
        assert (reply.status, reply.headers["connection"]) == (413, "close")


async def test_a_chunked_body_is_read_and_bounded() -> None:
    async with running_http(echo, HttpLimits(body_bytes=10)) as running:
        head = (
            b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        client = await running.connect()
        await client.send(head + b"6\r\nabcdef\r\n4\r\nghij\r\n0\r\n\r\n")
        assert (await client.reply(method="POST")).body == b"POST /a 10"
        await client.send(head + b"6\r\nabcdef\r\n5\r\nghijk\r\n0\r\n\r\n")
        assert (await client.reply(method="POST")).status == 413


async def test_all_bodies_together_are_bounded() -> None:
    waiting = Waiting()
    limits = HttpLimits(total_body_bytes=100)
    async with running_http(waiting, limits) as running:
        first, second = await running.connect(), await running.connect()
        await first.send(request_bytes("POST", "/", body=b"x" * 80))
        await waiting.begun.wait()
        await second.send(request_bytes("POST", "/", body=b"x" * 30))
        assert (await second.reply(method="POST")).status == 503


LIMIT = HttpLimits().header_bytes
MALFORMED: dict[str, tuple[bytes, int]] = {
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "both framings": (
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        400,
    ),
    "chunks in 1.0": (
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "unknown coding": (
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        501,
    ),
    "two lengths": (
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
        b"Content-Length: 4\r\n\r\nabcd"),
        400,
    ),
    "negative length": (
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        400,
    ),
    "bad chunk": (
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        400,
    ),
    "other version": (b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
    "absolute target": (b"GET http://x/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    "long target": (request_bytes("GET", "/" + "a" * 9000), 414),
    "64 KiB header": (request_bytes("GET", "/", "X: " + "a" * 65536), 431),
    "header just over": (request_bytes("GET", "/", "X: " + "a" * LIMIT), 431),
    "many headers": (request_bytes("GET", "/", *["X: y"] * 101), 431),
    "foreign host": (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
}


@pytest.mark.parametrize("case", list(MALFORMED))
async def test_a_malformed_request_is_refused_and_the_connection_ends(
    case: str,
) -> None:
    data, status = MALFORMED[case]
    async with running_http(echo) as running:
        client = await running.connect()
        await client.send(data)
        seen = await client.read_to_end()
        assert seen.startswith(b"HTTP/1.1 %d " % status)
        assert b"connection: close" in seen.lower()


async def test_every_cut_of_a_request_gives_the_same_answer() -> None:
    data = request_bytes("POST", "/cut", body=b"abc")
    async with running_http(echo) as running:
        client = await running.connect()
        for cut in range(1, len(data)):
            await client.send(data[:cut])
            await trio.testing.wait_all_tasks_blocked()
            await client.send(data[cut:])
            assert (await client.reply(method="POST")).body == b"POST /cut 3"


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("localhost", True),
        ("LOCALHOST:9337", True),
        ("app.localhost", True),
        ("127.0.0.1:80", True),
        ("127.1.2.3", True),
        ("[::1]:80", True),
        ("[::1", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("10.0.0.1", False),
        ("[fe80::1]", False),
        ("", False),
    ],
)
def test_only_loopback_names_are_right_on_a_loopback_bind(
    host: str, *, is_ours: bool
) -> None:
    """parts 5.1 row 14: a rebinding page sends its own name."""
    assert is_loopback_host(host) is is_ours


async def test_any_host_is_right_on_a_bind_for_everyone() -> None:
    listener = await open_listener("0.0.0.0")
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(
                serve_http, [listener], echo, HttpLimits(), refusal_shape=plain_shape
            )
        )
        stream = await trio.open_tcp_stream("127.0.0.1", port_of(listener))
        async with stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: node-a\r\n\r\n")
            assert (await stream.receive_some(4096)).startswith(b"HTTP/1.1 200")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
async def test_a_slow_head_ends_the_connection(sent: bytes) -> None:
    async with running_http(echo, HttpLimits(header_s=0.05)) as running:
        client = await running.connect()
        await client.send(sent)
        seen = await client.read_to_end()
        assert seen.startswith(b"HTTP/1.1 408 ") if sent else seen == b""


async def test_an_idle_connection_is_closed() -> None:
    async with running_http(echo, HttpLimits(idle_s=0.05)) as running:
        client = await running.connect()
        await client.get("/")
        assert await client.read_to_end() == b""


async def test_a_body_below_the_slowest_rate_is_refused() -> None:
    limits = HttpLimits(body_grace_s=0.05, body_bytes_per_s=1000)
    async with running_http(echo, limits) as running:
        client = await running.connect()
        head = request_bytes("POST", "/", body=b"x" * 200)
        await client.send(head[:-190])
        assert (await client.reply(method="POST")).status == 408


async def test_connections_over_the_limit_are_told_so() -> None:
    limits = HttpLimits(connections=3, connections_per_address=2)
    async with running_http(echo, limits) as running:
        clients = [await running.connect() for _ in range(2)]
        for client in clients:
            await client.get("/")
        third = await running.connect()
        seen = await third.read_to_end()
        assert seen.startswith(b"HTTP/1.1 503 ")
        await clients[0].stream.aclose()
        while running.server.connection_count > 1:
            await trio.testing.wait_all_tasks_blocked()
        assert (await (await running.connect()).get("/")).status == 200


async def test_a_client_that_hangs_up_cancels_its_handler() -> None:
    waiting = Waiting()
    async with running_http(waiting) as running:
        client = await running.connect()
        await client.send(request_bytes("GET", "/"))
        await waiting.begun.wait()
        await client.stream.aclose()
        await waiting.ended.wait()
        while running.server.connection_count:
            await trio.testing.wait_all_tasks_blocked()
        assert running.server.connection_count == 0


async def test_a_client_that_resets_cancels_its_handler() -> None:
    waiting = Waiting()
    async with running_http(waiting) as running:
        client = await running.connect()
        await client.send(request_bytes("GET", "/"))
        await waiting.begun.wait()
        client.stream.socket.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        await client.stream.aclose()
        await waiting.ended.wait()
        assert waiting.ended.is_set()


async def test_bytes_of_a_next_request_are_no_hang_up() -> None:
    release = trio.Event()

    async def held(request: HttpRequest, exchange: Exchange) -> None:
        await release.wait()
        await echo(request, exchange)

    async with running_http(held) as running:
        client = await running.connect()
        await client.send(request_bytes("GET", "/1"))
        await client.send(request_bytes("GET", "/2"))
        await trio.testing.wait_all_tasks_blocked(0.01)
        release.set()
        assert (await client.reply()).body == b"GET /1 0"
        assert (await client.reply()).body == b"GET /2 0"


async def test_a_client_that_reads_nothing_is_cut_off() -> None:
    flooding = Flooding()
    async with running_http(flooding, HttpLimits(write_s=0.05)) as running:
        client = await running.connect(receive_buffer_bytes=4096)
        await client.send(request_bytes("GET", "/"))
        await flooding.ended.wait()
        assert flooding.written_bytes > 0


async def test_a_fault_of_a_handler_is_a_500_and_ends_that_request_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def faulty(request: HttpRequest, exchange: Exchange) -> None:
        if request.path == "/fault":
            raise ValueError("secret detail")
        if request.path == "/begun":
            exchange.plan_stream((), ping=b".", ping_every_s=60)
            await exchange.write(b"part")
            raise ValueError("secret detail")

    async with running_http(faulty) as running:
        seen = await (await running.connect()).get("/fault")
        assert seen.status == 500
        assert b"secret" not in seen.body
        assert (await (await running.connect()).get("/silent")).status == 500
        client = await running.connect()
        await client.send(request_bytes("GET", "/begun"))
        stream = await client.read_to_end()
        assert b"part" in stream
        assert not stream.endswith(b"0\r\n\r\n")
    assert "event=http_handler_failed" in caplog.text


async def test_a_silent_stream_is_pinged_and_a_busy_one_is_not() -> None:
    release = trio.Event()

    async def slow(request: HttpRequest, exchange: Exchange) -> None:
        exchange.plan_stream((), ping=b"[ping]", ping_every_s=0.02)
        await release.wait()
        await exchange.write(b"text")
        await exchange.end_stream()

    async with running_http(slow) as running:
        client = await running.connect()
        await client.send(request_bytes("GET", "/"))
        seen = await client.read_until(b"[ping]\r\n6\r\n[ping]\r\n")
        assert seen.startswith(b"HTTP/1.1 200 ")
        release.set()
        assert b"text" in await client.read_until(b"0\r\n\r\n")


async def test_a_stream_to_an_old_client_ends_with_the_connection() -> None:
    async def short(request: HttpRequest, exchange: Exchange) -> None:
        exchange.plan_stream((), ping=b"", ping_every_s=60)
        await exchange.write(b"a")
        await exchange.write(b"b")
        await exchange.end_stream()

    async with running_http(short) as running:
        client = await running.connect()
        await client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.read_to_end()).endswith(b"\r\n\r\nab")


async def test_a_planned_stream_may_still_become_an_error() -> None:
    async def failing(request: HttpRequest, exchange: Exchange) -> None:
        exchange.plan_stream((), ping=b".", ping_every_s=60)
        await exchange.respond(HttpResponse(502, b"lost"))

    async with running_http(failing) as running:
        client = await running.connect()
        reply = await client.get("/")
        assert (reply.status, reply.body) == (502, b"lost")
        assert (await client.get("/")).status == 502


async def test_a_drain_lets_running_requests_finish() -> None:
    release, begun = trio.Event(), trio.Event()

    async def held(request: HttpRequest, exchange: Exchange) -> None:
        begun.set()
        await release.wait()
        await echo(request, exchange)

    listener = await open_listener()
    async with trio.open_nursery() as nursery:
        server: HttpServer = await nursery.start(
            partial(
                serve_http, [listener], held, HttpLimits(), refusal_shape=plain_shape
            )
        )
        port = port_of(listener)
        idle = await trio.open_tcp_stream("127.0.0.1", port)
        busy = await trio.open_tcp_stream("127.0.0.1", port)
        async with idle, busy:
            await busy.send_all(request_bytes("GET", "/busy"))
            await begun.wait()
            server.begin_drain()
            assert await idle.receive_some(100) == b""
            with pytest.raises(OSError, match="connect"):
                await trio.open_tcp_stream("127.0.0.1", port)
            release.set()
            assert b"GET /busy 0" in await busy.receive_some(4096)
            assert await busy.receive_some(100) == b""
    assert server.connection_count == 0


async def test_a_stalled_client_cannot_hold_up_the_end_of_a_drain() -> None:
    flooding = Flooding()
    listener = await open_listener()
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            server: HttpServer = await nursery.start(
                partial(
                    serve_http,
                    [listener],
                    flooding,
                    HttpLimits(drain_s=0.1),
                    refusal_shape=plain_shape,
                )
            )
            stalled = await trio.open_tcp_stream("127.0.0.1", port_of(listener))
            async with stalled:
                await stalled.send_all(request_bytes("GET", "/"))
                await trio.testing.wait_all_tasks_blocked(0.01)
                server.begin_drain()
                await flooding.ended.wait()
    assert server.connection_count == 0
