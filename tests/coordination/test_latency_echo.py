"""The responder that stages' distances are measured with, and rude clients of it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.config.endpoints import Endpoint
from skippyd.coordination.latency_echo import (
    MESSAGE,
    MOST_CONNECTIONS,
    ROUND_TRIPS,
    measure_latencies_ms,
    serve_latency_echo,
)
from skippyd.ids import NodeId


if TYPE_CHECKING:
    from collections.abc import AsyncIterator

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


@asynccontextmanager
async def responder() -> AsyncIterator[Endpoint]:
    async with trio.open_nursery() as nursery:
        port: int = await nursery.start(serve_latency_echo, "127.0.0.1")
        yield Endpoint("127.0.0.1", port)
        nursery.cancel_scope.cancel()


async def test_who_answers_is_measured_and_who_does_not_is_left_out() -> None:
    async with responder() as here:
        nobody = Endpoint("127.0.0.1", 1)
        found = await measure_latencies_ms(
            {A: here, B: nobody, C: here}, source_host="127.0.0.1"
        )
    assert set(found) == {A, C}
    assert all(0 < one_way_ms < 1000 for one_way_ms in found.values())


@pytest.mark.parametrize("source", ["", "0.0.0.0"])
async def test_any_own_address_will_do_when_none_is_configured(source: str) -> None:
    async with responder() as here:
        assert set(await measure_latencies_ms({A: here}, source_host=source)) == {A}


async def test_an_address_that_is_not_here_cannot_be_left_from() -> None:
    async with responder() as here:
        assert await measure_latencies_ms({A: here}, source_host="192.0.2.199") == {}


async def test_a_target_that_says_nothing_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with silent:
        here = Endpoint(*silent.socket.getsockname())
        assert await measure_latencies_ms({A: here}, source_host="127.0.0.1") == {}


async def test_a_target_that_answers_something_else_is_left_out() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def rude(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.send_all(b"x" * len(MESSAGE))
            await stream.receive_some()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, rude, [listener])
        here = Endpoint(*listener.socket.getsockname())
        assert await measure_latencies_ms({A: here}, source_host="127.0.0.1") == {}
        nursery.cancel_scope.cancel()


async def is_ended(stream: trio.SocketStream) -> bool:
    """Whether the other side closes without a word; unread bytes make that a reset."""
    try:
        return await stream.receive_some() == b""
    except trio.BrokenResourceError:
        return True


@pytest.mark.parametrize("said", [b"garbage, sixteen", b"\0" * 1000])
async def test_whoever_says_something_else_is_cut_off(said: bytes) -> None:
    async with responder() as here:
        async with await trio.open_tcp_stream(here.host, here.port) as client:
            await client.send_all(said)
            with trio.fail_after(2):
                assert await is_ended(client)
        assert set(await measure_latencies_ms({A: here}, source_host="")) == {A}


async def test_nobody_may_ask_for_ever() -> None:
    async with (
        responder() as here,
        await trio.open_tcp_stream(here.host, here.port) as client,
    ):
        for _ in range(ROUND_TRIPS):
            await client.send_all(MESSAGE)
            assert await client.receive_some() == MESSAGE
        with trio.fail_after(2):
            assert await is_ended(client)


async def test_too_many_at_once_are_cut_off_at_once() -> None:
    async with responder() as here:
        idle = [
            await trio.open_tcp_stream(here.host, here.port)
            for _ in range(MOST_CONNECTIONS)
        ]
        await trio.testing.wait_all_tasks_blocked()
        async with await trio.open_tcp_stream(here.host, here.port) as late:
            with trio.fail_after(2):
                assert await is_ended(late)
        for stream in idle:
            await stream.aclose()
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert set(await measure_latencies_ms({A: here}, source_host="")) == {A}
