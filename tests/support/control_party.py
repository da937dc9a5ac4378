"""A served node, a peer that it knows, and ways to knock at its control port."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.coordination.control_frames import frame_of, hello_of
from skippyd.coordination.control_timers import CONTROL_ALPN, CONTROL_PATH
from skippyd.net.jsonrpc import RpcConnection
from skippyd.net.jsonrpc_messages import RpcError
from skippyd.net.tls import client_context
from skippyd.net.websocket import (
    WebSocketChannel,
    WebSocketLimits,
    open_websocket,
)
from support.control_nodes import (
    QUICK,
    ControlNode,
    acquaint,
    listen,
    make_node,
)


if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable
    from pathlib import Path

SHORT = attrs.evolve(QUICK, opening_s=0.3)


@attrs.define(eq=False)
class Party:
    """A served node and a peer that it knows."""

    server: ControlNode
    client: ControlNode

    def context(self) -> ssl.SSLContext:
        return client_context(
            self.client.identity.own_certificate,
            trusted_pem=self.server.identity.certificate_pem,
            alpn=[CONTROL_ALPN],
        )

    async def plain(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.server.port)

    async def tls(
        self, context: ssl.SSLContext | None = None
    ) -> trio.SSLStream[trio.SocketStream]:
        stream = trio.SSLStream(await self.plain(), context or self.context())
        await stream.do_handshake()
        return stream

    @asynccontextmanager
    async def channel(
        self, path: str = CONTROL_PATH, context: ssl.SSLContext | None = None
    ) -> AsyncIterator[WebSocketChannel]:
        limits = WebSocketLimits(message_characters=1 << 22)
        async with open_websocket(
            await self.tls(context), host="node", path=path, limits=limits
        ) as channel:
            yield channel

    @asynccontextmanager
    async def rpc(
        self,
        path: str = CONTROL_PATH,
        context: ssl.SSLContext | None = None,
        *,
        says_hello: bool = True,
    ) -> AsyncIterator[RpcConnection]:
        async with self.channel(path, context) as channel:
            rpc = RpcConnection(channel)
            async with trio.open_nursery() as nursery:
                await nursery.start(rpc.run)
                if says_hello:
                    await rpc.call("hello", self.hello())
                yield rpc
                nursery.cancel_scope.cancel()

    def hello(self) -> dict[str, object]:
        return hello_of(self.client.stages.said)

    def frame(self, command: dict[str, object] | None = None) -> dict[str, object]:
        return frame_of(self.client.node_id, 2_000, {} if command is None else command)


@asynccontextmanager
async def party(folder: Path) -> AsyncIterator[Party]:
    server = make_node(folder, "server", timers=SHORT)
    client = make_node(folder, "client", timers=SHORT)
    listener = await listen(server)
    await (await listen(client)).aclose()
    acquaint(server, client)
    async with trio.open_nursery() as nursery:

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            await server.run(listener, with_registry=False, task_status=task_status)

        await nursery.start(run)
        yield Party(server, client)
        nursery.cancel_scope.cancel()


async def refused(call: Awaitable[object]) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await call
    return caught.value


async def is_ended(
    stream: trio.SocketStream | trio.SSLStream[trio.SocketStream],
) -> bool:
    """Whether the server closes, whatever it says before; closes as well."""
    try:
        while await stream.receive_some():
            await trio.lowlevel.checkpoint()
    except trio.BrokenResourceError:
        return True
    finally:
        await trio.aclose_forcefully(stream)
    return True


async def assert_still_serves(both: Party) -> None:
    async with both.rpc() as rpc:
        assert await rpc.call("inventory", both.frame({})) == {"models": []}
