"""Hostile connections to the control port end in time and harm nobody else."""

from __future__ import annotations

import json
import socket
import struct
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.coordination import control_server
from skippyd.net.websocket import ChannelClosedError
from support.control_party import Party, assert_still_serves, is_ended, party


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.watchdog(60)]


async def _garbage(both: Party) -> None:
    stream = await both.plain()
    await stream.send_all(b"GET / HTTP/1.1\r\n\r\n" + b"\0" * 1000)
    assert await is_ended(stream)


async def _gone_at_once(both: Party) -> None:
    for _ in range(20):
        stream = await both.plain()
        linger = struct.pack("ii", 1, 0)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await trio.aclose_forcefully(stream)


async def _silence(both: Party) -> None:
    assert await is_ended(await both.plain())


async def _half_a_handshake(both: Party) -> None:
    stream = await both.plain()
    await stream.send_all(b"\x16\x03\x01\x02\x00\x01\x00")
    assert await is_ended(stream)


async def _slow_drip(both: Party) -> None:
    stream = await both.tls()
    request = b"GET /control/1 HTTP/1.1\r\nHost: node\r\nX-Long: " + b"x" * 100
    try:
        for byte in request:
            await stream.send_all(bytes([byte]))
            await trio.sleep(0.02)
    except trio.BrokenResourceError:
        await trio.aclose_forcefully(stream)
        return
    assert await is_ended(stream)


async def _no_hello(both: Party) -> None:
    async with both.channel() as channel:
        with pytest.raises(ChannelClosedError):
            await channel.receive()


async def _garbage_in_a_message(both: Party) -> None:
    async with both.channel() as channel:
        await channel.send("no json")
        assert "error" in json.loads(await channel.receive())
        with pytest.raises(ChannelClosedError, match="line 1"):
            await channel.receive()


async def _an_oversized_message(both: Party) -> None:
    async with both.channel() as channel:
        await channel.send("x" * ((1 << 20) + 1))
        with pytest.raises(ChannelClosedError, match="maximum message size"):
            await channel.receive()


async def _a_flood_of_hellos(both: Party) -> None:
    async with both.rpc() as rpc:
        for _ in range(50):
            await rpc.call("hello", both.hello())


@pytest.mark.parametrize(
    "attack",
    [
        _garbage,
        _gone_at_once,
        _silence,
        _half_a_handshake,
        _slow_drip,
        _no_hello,
        _garbage_in_a_message,
        _an_oversized_message,
        _a_flood_of_hellos,
    ],
)
async def test_a_hostile_connection_ends_in_time_and_harms_nobody_else(
    tmp_path: Path, attack: Callable[[Party], Awaitable[None]]
) -> None:
    async with party(tmp_path) as both:
        with trio.fail_after(5):
            await attack(both)
        await assert_still_serves(both)


async def test_connections_that_are_being_opened_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "MOST_OPENING_PER_ADDRESS", 3)
    async with party(tmp_path) as both:
        idle = [await both.plain() for _ in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        late = await both.plain()
        with trio.fail_after(0.2):
            assert await is_ended(late)
        for stream in idle:
            with trio.fail_after(2):
                assert await is_ended(stream)
        await assert_still_serves(both)
