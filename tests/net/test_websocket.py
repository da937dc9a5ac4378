"""Channels over memory streams and sockets: words, bounds, reasons, and hostile peers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from trio.testing import memory_stream_pair

from skippyd.errors import LocalProtocolError
from skippyd.net.websocket import (
    ChannelClosedError,
    WebSocketChannel,
    WebSocketLimits,
    accept_websocket,
    open_websocket,
)


if TYPE_CHECKING:
    from collections.abc import AsyncIterator

QUICK = WebSocketLimits(
    handshake_s=0.2, send_s=0.2, close_s=0.2, message_characters=1000
)
UPGRADE = (
    b"GET /v1 HTTP/1.1\r\nHost: node\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@attrs.frozen
class Both:
    """Two ends of one channel."""

    client: WebSocketChannel
    server: WebSocketChannel


@asynccontextmanager
async def connected(limits: WebSocketLimits = QUICK) -> AsyncIterator[Both]:
    ours, theirs = memory_stream_pair()
    accepted: list[WebSocketChannel] = []

    async def serve(*, task_status: trio.TaskStatus[None]) -> None:
        async with accept_websocket(theirs, paths={"/v1"}, limits=limits) as channel:
            accepted.append(channel)
            task_status.started()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        connecting = open_websocket(ours, host="node", path="/v1", limits=limits)

        async def started() -> None:
            await nursery.start(serve)

        nursery.start_soon(started)
        async with connecting as client:
            while not accepted:
                await trio.testing.wait_all_tasks_blocked()
            yield Both(client, accepted[0])
            nursery.cancel_scope.cancel()


async def raw(
    sent: bytes, then: bytes = b"", limits: WebSocketLimits = QUICK
) -> tuple[bytes, str]:
    """What a server answers to some bytes, and what it says about the client.

    Args:
        sent: The first bytes.
        then: What follows the first answer.
        limits: The server's.
    """
    ours, theirs = memory_stream_pair()
    received = bytearray()
    reason = ""

    async def talk() -> None:
        async with ours:
            await ours.send_all(sent)
            received.extend(await ours.receive_some())
            if then:
                await ours.send_all(then)
            async for part in ours:
                received.extend(part)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(talk)
        try:
            async with accept_websocket(
                theirs, paths={"/v1"}, limits=limits
            ) as channel:
                await channel.receive()
        except ChannelClosedError as error:
            reason = str(error)
    return bytes(received), reason


async def send_much(channel: WebSocketChannel) -> None:
    for _ in range(64):
        await channel.send("x" * 900_000)


async def test_words_go_both_ways() -> None:
    async with connected() as both:
        await both.client.send("fence")
        assert await both.server.receive() == "fence"
        await both.server.send("claim ü")
        assert await both.client.receive() == "claim ü"
        assert both.server.path == "/v1"


async def test_a_ping_measures_the_round_trip() -> None:
    async with connected() as both:
        assert 0 <= await both.client.ping() < 1000


async def test_the_reason_of_a_close_arrives() -> None:
    async with connected() as both:
        await both.server.close(1008, "another generation")
        with pytest.raises(ChannelClosedError, match="another generation"):
            await both.client.receive()


async def test_a_reason_longer_than_a_close_frame_is_cut_not_lost() -> None:
    async with connected() as both:
        await both.server.close(1008, "ü" * 200)
        with pytest.raises(ChannelClosedError, match=r"^ü{61}$"):
            await both.client.receive()


async def test_an_oversized_message_is_not_sent() -> None:
    async with connected() as both:
        with pytest.raises(LocalProtocolError, match="over the limit of 1000"):
            await both.client.send("x" * 1001)
        await both.client.send("still open")
        assert await both.server.receive() == "still open"


async def test_an_oversized_message_of_the_peer_ends_the_channel_with_a_reason() -> (
    None
):
    frame = b"\x81\xfe\x04\x00\x00\x00\x00\x00" + b"x" * 1024
    answer, reason = await raw(UPGRADE, frame)
    assert b"101" in answer
    assert b"Exceeded maximum message size" in answer
    assert "Exceeded maximum message size" in reason


async def test_bytes_are_refused() -> None:
    answer, reason = await raw(UPGRADE, b"\x82\x81\x00\x00\x00\x00x")
    assert b"messages are text" in answer
    assert "messages are text" in reason


async def test_another_path_is_not_there() -> None:
    answer, reason = await raw(UPGRADE.replace(b"/v1", b"/v2"))
    assert answer.startswith(b"HTTP/1.1 404")
    assert "'/v2'" in reason


async def test_the_client_of_another_path_is_told_so() -> None:
    ours, theirs = memory_stream_pair()

    async def serve() -> None:
        with pytest.raises(ChannelClosedError):
            async with accept_websocket(theirs, paths={"/v1"}, limits=QUICK):
                pytest.fail("no channel may come about")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with pytest.raises(ChannelClosedError, match="404: no such path"):
            async with open_websocket(ours, host="node", path="/", limits=QUICK):
                pytest.fail("no channel may come about")


@pytest.mark.parametrize("sent", [b"\x16\x03\x01garbage\r\n\r\n", b"\0" * 70_000])
async def test_garbage_ends_at_once(sent: bytes) -> None:
    """Not only after the deadline: the library would wait for ever."""
    begun = trio.current_time()
    patient = WebSocketLimits(handshake_s=30)
    _, reason = await raw(sent, limits=patient)
    assert reason
    assert trio.current_time() - begun < 5


async def test_a_silent_client_is_given_up() -> None:
    ours, theirs = memory_stream_pair()
    async with ours:
        with pytest.raises(ChannelClosedError, match=r"took longer than 0\.2 s"):
            async with accept_websocket(theirs, paths={"/v1"}, limits=QUICK):
                pytest.fail("no channel may come about")


async def test_a_silent_server_is_given_up() -> None:
    ours, theirs = memory_stream_pair()
    async with theirs:
        with pytest.raises(ChannelClosedError, match=r"took longer than 0\.2 s"):
            async with open_websocket(ours, host="node", path="/v1", limits=QUICK):
                pytest.fail("no channel may come about")


async def test_a_plain_web_request_is_answered_and_ended() -> None:
    answer, reason = await raw(b"GET /v1 HTTP/1.1\r\nHost: node\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert reason


@pytest.mark.slow
async def test_a_peer_that_reads_nothing_is_cut_off() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = listeners[0].socket.getsockname()
    limits = WebSocketLimits(send_s=0.2, close_s=0.2)
    async with listeners[0]:
        client = await trio.open_tcp_stream(*address[:2])
        server = await listeners[0].accept()
        await client.send_all(UPGRADE)
        async with (
            client,
            accept_websocket(server, paths={"/v1"}, limits=limits) as own,
        ):
            with pytest.raises(ChannelClosedError, match=r"read nothing for 0\.2 s"):
                await send_much(own)
            with pytest.raises(ChannelClosedError):
                await own.receive()


async def test_a_cut_connection_is_noticed() -> None:
    ours, theirs = memory_stream_pair()
    await ours.send_all(UPGRADE)
    async with accept_websocket(theirs, paths={"/v1"}, limits=QUICK) as channel:
        await ours.aclose()
        with pytest.raises(ChannelClosedError, match="other side ended"):
            await channel.receive()


async def test_an_error_of_the_block_is_not_wrapped() -> None:
    ours, theirs = memory_stream_pair()
    await ours.send_all(UPGRADE)
    with pytest.raises(KeyError, match="mine"):
        async with accept_websocket(theirs, paths={"/v1"}, limits=QUICK):
            raise KeyError("mine")


async def test_cancelling_is_quick_and_complete() -> None:
    ours, theirs = memory_stream_pair()
    await ours.send_all(UPGRADE)
    with trio.fail_after(5):
        with trio.CancelScope() as scope:
            async with accept_websocket(theirs, paths={"/v1"}, limits=QUICK) as channel:
                scope.cancel()
                await channel.receive()
        assert scope.cancelled_caught
        received = bytearray()
        async for part in ours:
            received.extend(part)
    assert received.startswith(b"HTTP/1.1 101")
