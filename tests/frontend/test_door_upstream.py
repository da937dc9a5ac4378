"""The small HTTP client of the door: heads, pieces, and every way to be cut off."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.coordination.route import RouteTable
from skippyd.frontend.door_routes import DoorRoutes  # noqa: TC001 - a promise
from skippyd.frontend.door_upstream import (
    UpstreamExchange,
    UpstreamLostError,
    UpstreamUnreachableError,
    open_upstream,
)
from skippyd.ids import NodeId
from support.http_client import open_listener, port_of


if TYPE_CHECKING:
    from collections.abc import AsyncIterator


OK = b"HTTP/1.1 200 OK\r\n"


@asynccontextmanager
async def answered(said: bytes) -> AsyncIterator[UpstreamExchange]:
    """Ask a server that says these bytes and closes."""
    listener = await open_listener()

    async def say(stream: trio.SocketStream) -> None:
        await stream.receive_some(65_536)
        await stream.send_all(said)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, say, [listener])
        exchange = await open_upstream(
            f"http://127.0.0.1:{port_of(listener)}/v1",
            method="POST",
            target="/v1/x",
            headers={"accept": "*/*"},
            body=b"{}",
        )
        try:
            yield exchange
        finally:
            await exchange.aclose()
            nursery.cancel_scope.cancel()


async def test_a_whole_answer_is_read() -> None:
    said = OK + b"Content-Type: Text/Event-Stream; charset=utf-8\r\n"
    said += b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with answered(said) as exchange:
        head = await exchange.read_head()
        assert (head.status, head.is_stream) == (200, True)
        assert await exchange.read_body(100) == b"abcde"


async def test_interim_answers_are_passed_over() -> None:
    said = b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"content-length: 0\r\n\r\n"
    async with answered(said) as exchange:
        assert (await exchange.read_head()).status == 200
        assert await exchange.read_piece() == b""


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 20", b"SSH-2.0-x\r\n\r\n"])
async def test_no_head_is_a_lost_upstream(said: bytes) -> None:
    async with answered(said) as exchange:
        with pytest.raises(UpstreamLostError):
            await exchange.read_head()


@pytest.mark.parametrize(
    "rest",
    [
        b"content-length: 9\r\n\r\nabc",
        b"transfer-encoding: chunked\r\n\r\n9\r\nabc",
        b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
async def test_half_an_answer_is_a_lost_upstream(rest: bytes) -> None:
    async with answered(OK + rest) as exchange:
        await exchange.read_head()
        with pytest.raises(UpstreamLostError):
            await exchange.read_body(100)


async def test_an_answer_is_bounded() -> None:
    async with answered(OK + b"content-length: 9\r\n\r\n123456789") as exchange:
        await exchange.read_head()
        with pytest.raises(UpstreamLostError, match="over 8 bytes"):
            await exchange.read_body(8)


async def test_a_head_is_bounded() -> None:
    async with answered(OK + b"x: " + b"y" * 200_000) as exchange:
        with pytest.raises(UpstreamLostError):
            await exchange.read_head()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/v1", "nonsense"])
async def test_nobody_there_is_unreachable(url: str) -> None:
    with pytest.raises(UpstreamUnreachableError):
        await open_upstream(url, method="GET", target="/", headers={})


def test_the_route_table_is_what_the_door_needs() -> None:
    routes: DoorRoutes = RouteTable(NodeId("a"))
    assert routes.published() == ()
