"""Responses on real sockets: pings, old clients, a status that stays open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from skippyd.net.http_values import HttpRequest, HttpResponse
from support.http_client import (
    request_bytes,
    running_http,
)


if TYPE_CHECKING:
    from skippyd.net.http_exchange import Exchange


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
