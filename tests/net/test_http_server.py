"""Listeners, connection limits and drains on real sockets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.net.http_server import HttpServer, serve_http
from skippyd.net.http_values import HttpLimits, HttpRequest, HttpResponse
from support.http_client import (
    open_listener,
    plain_shape,
    port_of,
    request_bytes,
    running_http,
)
from support.http_handlers import Flooding, echo


if TYPE_CHECKING:
    from skippyd.net.http_exchange import Exchange


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


async def test_a_fault_in_one_connection_ends_that_one_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def faulty_shape(status: int, message: str) -> HttpResponse:
        raise ValueError(message)

    async with running_http(echo, shape=faulty_shape) as running:
        broken = await running.connect()
        await broken.send(b"garbage\r\n\r\n")
        assert await broken.read_to_end() == b""
        assert (await (await running.connect()).get("/")).status == 200
    assert "event=http_connection_failed" in caplog.text


async def test_only_so_many_clients_at_once_are_told_that_it_is_full() -> None:
    async with running_http(echo, HttpLimits(connections=0, linger_s=30)) as running:
        clients = [await running.connect() for _ in range(70)]
        told = 0
        # The first 64 linger until their clients close; the others are just closed.
        for client in clients:
            told += (await client.read_to_end()).startswith(b"HTTP/1.1 503 ")
        assert told == 64
