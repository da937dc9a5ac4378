"""Requests on real sockets: what is read, what is refused, and with which status."""

from __future__ import annotations

import pytest
import trio

from skippyd.net.http_reader import is_loopback_host
from skippyd.net.http_values import HttpLimits
from support.http_client import (
    request_bytes,
    running_http,
)
from support.http_handlers import Waiting, echo


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
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
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
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n"
            b"Content-Length: 4\r\n\r\nabcd"
        ),
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


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc"])
async def test_a_slow_head_ends_the_connection(sent: bytes) -> None:
    async with running_http(echo, HttpLimits(header_s=0.05)) as running:
        client = await running.connect()
        await client.send(sent)
        seen = await client.read_to_end()
        assert seen.startswith(b"HTTP/1.1 408 ") if sent else seen == b""


async def test_a_body_below_the_slowest_rate_is_refused() -> None:
    limits = HttpLimits(body_grace_s=0.05, body_bytes_per_s=1000)
    async with running_http(echo, limits) as running:
        client = await running.connect()
        head = request_bytes("POST", "/", body=b"x" * 200)
        await client.send(head[:-190])
        assert (await client.reply(method="POST")).status == 408
