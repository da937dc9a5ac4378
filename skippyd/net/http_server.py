"""Listeners and connections of one HTTP server, from start to drained."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.net.http_connection import (
    HttpConnection,
    HttpHandler,
    HttpService,
    RefusalShape,
)
from skippyd.net.http_reader import BodyBudget
from skippyd.net.http_values import HttpLimits, HttpRefusalError, PeerGoneError
from skippyd.net.http_wire import ByteWire


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


logger = logging.getLogger(__name__)

# Clients over the limits are told so, but not any number of them at one time.
_TOLD_AT_ONCE = 64


@attrs.define
class HttpServer:
    """A running server; given out when it accepts."""

    _service: HttpService
    _accepting: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _by_address: Counter[str] = attrs.field(factory=Counter, init=False)
    _told: int = attrs.field(default=0, init=False)

    @property
    def connection_count(self) -> int:
        """Connections that are open and within the limits."""
        return self._by_address.total()

    def begin_drain(self) -> None:
        """Accept nothing more, end idle connections, let the others finish.

        Whoever has not finished after `drain_s` is cut off, stalled clients too.
        """
        self._service.is_draining = True
        self._accepting.cancel()
        for scope in self._service.idle_scopes:
            scope.cancel()

    async def accept(
        self, listeners: Sequence[trio.SocketListener], connections: trio.Nursery
    ) -> None:
        """Accept until `begin_drain`; the listeners are closed afterwards."""
        with self._accepting:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    handler = partial(
                        self._serve_connection,
                        has_loopback_bind=_is_loopback_bind(listener),
                    )
                    nursery.start_soon(
                        partial(
                            trio.serve_listeners,
                            handler,
                            [listener],
                            handler_nursery=connections,
                        )
                    )

    async def _serve_connection(
        self, stream: trio.SocketStream, *, has_loopback_bind: bool
    ) -> None:
        wire = ByteWire.take(stream, write_s=self._service.limits.write_s)
        connection = HttpConnection(
            self._service, wire, has_loopback_bind=has_loopback_bind
        )
        try:
            await self._run(connection, wire.peer_address())
        except PeerGoneError as error:
            logger.debug("event=http_client_gone reason=%r", str(error))
        # The guard: a fault of ours in one connection ends that connection only.
        except Exception:
            logger.exception("event=http_connection_failed")
        finally:
            wire.close()

    async def _run(self, connection: HttpConnection, address: str) -> None:
        limits = self._service.limits
        is_full = self.connection_count >= limits.connections
        if is_full or self._by_address[address] >= limits.connections_per_address:
            await self._tell_full(connection)
            return
        with self._counted(address):
            await connection.run()

    async def _tell_full(self, connection: HttpConnection) -> None:
        if self._told >= _TOLD_AT_ONCE:
            return
        self._told += 1
        try:
            message = "too many connections; close some or try again in a moment"
            await connection.refuse(HttpRefusalError(503, message))
        finally:
            self._told -= 1

    @contextmanager
    def _counted(self, address: str) -> Iterator[None]:
        self._by_address[address] += 1
        try:
            yield
        finally:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


async def serve_http(
    listeners: Sequence[trio.SocketListener],
    handler: HttpHandler,
    limits: HttpLimits,
    *,
    refusal_shape: RefusalShape,
    task_status: trio.TaskStatus[HttpServer] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve HTTP/1.1 until drained (`HttpServer.begin_drain`) or cancelled.

    Cancelling ends everything at once: no wait in here is shielded.

    Args:
        listeners: Bound and listening; they are closed at the end.
        handler: Answers each request.
        limits: What clients may cost.
        refusal_shape: Shapes the answers to what never reaches the handler.
        task_status: Gets the server once it accepts.
    """
    service = HttpService(
        handler,
        refusal_shape,
        limits=limits,
        budget=BodyBudget(limits.total_body_bytes),
    )
    server = HttpServer(service)
    async with trio.open_nursery() as connections:
        task_status.started(server)
        await server.accept(listeners, connections)
        connections.cancel_scope.deadline = trio.current_time() + limits.drain_s


def _is_loopback_bind(listener: trio.SocketListener) -> bool:
    address: str = listener.socket.getsockname()[0]
    return ip_address(address).is_loopback
