"""Channels of text messages in memory, for JSON-RPC without sockets."""

from __future__ import annotations

import attrs
import trio

from skippyd.errors import LocalProtocolError
from skippyd.net.websocket import ChannelClosedError


@attrs.define(eq=False)
class MemoryChannel:
    """One end of a channel in memory."""

    _to_peer: trio.MemorySendChannel[str]
    _from_peer: trio.MemoryReceiveChannel[str]
    longest: int = 10_000
    closed: str | None = None

    async def send(self, text: str) -> None:
        if len(text) > self.longest:
            raise LocalProtocolError("over the limit")
        try:
            await self._to_peer.send(text)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ChannelClosedError("gone") from None

    async def receive(self) -> str:
        try:
            return await self._from_peer.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise ChannelClosedError("gone") from None

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self.closed = reason
        await self._to_peer.aclose()
        await self._from_peer.aclose()


def channel_pair() -> tuple[MemoryChannel, MemoryChannel]:
    left_out, right_in = trio.open_memory_channel[str](64)
    right_out, left_in = trio.open_memory_channel[str](64)
    return MemoryChannel(left_out, left_in), MemoryChannel(right_out, right_in)
