"""One connection after the other: keep-alive, hang-ups, faults of handlers."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import trio

from skippyd.net.http_values import HttpLimits, HttpRequest
from support.http_client import (
    request_bytes,
    running_http,
)
from support.http_handlers import Flooding, Waiting, echo


if TYPE_CHECKING:
    import pytest

    from skippyd.net.http_exchange import Exchange


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


async def test_an_idle_connection_is_closed() -> None:
    async with running_http(echo, HttpLimits(idle_s=0.05)) as running:
        client = await running.connect()
        await client.get("/")
        assert await client.read_to_end() == b""


async def test_an_offer_to_switch_protocols_is_passed_over() -> None:
    async with running_http(echo) as running:
        client = await running.connect()
        reply = await client.get("/1", "Connection: Upgrade", "Upgrade: h2c")
        assert reply.body == b"GET /1 0"
        assert (await client.get("/2")).body == b"GET /2 0"


async def test_a_client_may_ask_for_the_end_of_the_connection() -> None:
    async with running_http(echo) as running:
        client = await running.connect()
        await client.get("/1", "Connection: close")
        assert await client.read_to_end() == b""


async def test_a_flood_of_next_requests_is_kept_only_up_to_a_limit() -> None:
    release, begun = trio.Event(), trio.Event()

    async def held(request: HttpRequest, exchange: Exchange) -> None:
        begun.set()
        await release.wait()
        await echo(request, exchange)

    async with running_http(held) as running:
        client = await running.connect()
        await client.send(request_bytes("GET", "/1"))
        await begun.wait()
        many = 3000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, request_bytes("GET", "/2") * many)
            await trio.testing.wait_all_tasks_blocked(0.01)
            release.set()
            for _ in range(100):
                assert (await client.reply()).status == 200
            nursery.cancel_scope.cancel()


async def test_a_peer_lost_while_it_is_pinged_cancels_its_handler() -> None:
    waiting = Waiting()

    async def silent(request: HttpRequest, exchange: Exchange) -> None:
        exchange.plan_stream((), ping=b"x" * 65536, ping_every_s=0.001)
        await waiting(request, exchange)

    # It never reads, so that a ping meets a full buffer and its deadline.
    async with running_http(silent, HttpLimits(write_s=0.05)) as running:
        client = await running.connect(receive_buffer_bytes=4096)
        await client.send(request_bytes("GET", "/"))
        await waiting.ended.wait()
        assert waiting.begun.is_set()


async def test_a_silent_hang_up_between_requests_just_ends_the_connection() -> None:
    async with running_http(echo) as running:
        client = await running.connect()
        await client.get("/")
        await client.stream.send_eof()
        assert await client.read_to_end() == b""
