from __future__ import annotations

import socket

import pytest
import trio

from skippyd.net.http_values import PeerGoneError
from skippyd.net.http_wire import ByteWire


def wire_pair(*, write_s: float = 30.0) -> tuple[ByteWire, trio.SocketStream]:
    ours, theirs = socket.socketpair()
    # A small buffer, so that a client that does not read is felt soon.
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours_stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    theirs_stream = trio.SocketStream(trio.socket.from_stdlib_socket(theirs))
    return ByteWire.take(ours_stream, write_s=write_s), theirs_stream


async def read_all(stream: trio.SocketStream) -> bytes:
    seen = b""
    while piece := await stream.receive_some(1000):
        seen += piece
    return seen


async def test_more_than_the_kernel_takes_at_once_arrives_whole() -> None:
    wire, peer = wire_pair()
    data = bytes(range(256)) * 4096
    seen: list[bytes] = []

    async def read() -> None:
        seen.append(await read_all(peer))

    async with peer, trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wire.send(data)
        wire.close()
    assert seen == [data]


async def test_a_small_write_is_no_checkpoint() -> None:
    wire, peer = wire_pair()
    async with peer:
        with trio.CancelScope() as scope:
            scope.cancel()
            await wire.send(b"token")
        assert not scope.cancelled_caught
        assert await peer.receive_some(10) == b"token"
        wire.close()


async def test_a_cancelled_read_loses_no_bytes() -> None:
    wire, peer = wire_pair()
    async with peer:
        await peer.send_all(b"kept")
        with trio.CancelScope() as scope:
            scope.cancel()
            await wire.receive(10)
        assert scope.cancelled_caught
        assert await wire.receive(10) == b"kept"
        wire.close()


async def test_a_peer_that_reads_nothing_is_given_up() -> None:
    wire, peer = wire_pair(write_s=0.02)
    async with peer:
        with pytest.raises(PeerGoneError, match=r"read nothing for 0\.02 s"):
            await wire.send(b"x" * 2**20)
        wire.close()


async def test_a_peer_that_closed_is_gone_for_writes_and_ended_for_reads() -> None:
    wire, peer = wire_pair()
    await peer.aclose()
    assert await wire.receive(10) == b""
    with pytest.raises(PeerGoneError, match="client closed"):
        await wire.send(b"x")
    wire.close()
    wire.close()


async def test_lingering_ends_with_the_peer() -> None:
    wire, peer = wire_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.linger)
        async with peer:
            await peer.send_all(b"more that nobody wants")
            assert await peer.receive_some(10) == b""
    wire.close()
