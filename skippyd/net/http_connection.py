"""The life of one client connection: request, response, next request.

While a handler works, a watcher reads the socket: an end of file means that the
client hung up, and the handler is cancelled, whether it streams or not.  Bytes of
a next request that arrive meanwhile are kept, up to a limit.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import attrs
import h11
import trio

from skippyd.net.http_exchange import Exchange
from skippyd.net.http_reader import BodyBudget, RequestReader
from skippyd.net.http_values import (
    HttpLimits,
    HttpRefusalError,
    HttpRequest,
    HttpResponse,
    PeerGoneError,
)


if TYPE_CHECKING:
    from skippyd.net.http_wire import ByteWire


logger = logging.getLogger(__name__)

_WATCH_READ_BYTES = 16384
_PIPELINED_BYTES = 65536


class HttpHandler(Protocol):
    """Answers one request through its exchange."""

    async def __call__(self, request: HttpRequest, exchange: Exchange) -> None:
        """Answer; an exception becomes a 500, or a broken stream once begun."""
        ...


class RefusalShape(Protocol):
    """Gives the server's own refusals the body that clients of this API expect."""

    def __call__(self, status: int, message: str) -> HttpResponse:
        """The response for a refusal."""
        ...


@attrs.define
class HttpService:
    """What all connections of one server share.

    Args:
        is_draining: No further request is taken; idle connections end.
    """

    handler: HttpHandler
    refusal_shape: RefusalShape
    limits: HttpLimits = attrs.field(kw_only=True)
    budget: BodyBudget = attrs.field(kw_only=True)
    is_draining: bool = attrs.field(default=False, init=False)
    idle_scopes: set[trio.CancelScope] = attrs.field(factory=set, init=False)


@attrs.define
class HttpConnection:
    """One connection; `run` returns when it is closed."""

    _service: HttpService
    _wire: ByteWire
    _has_loopback_bind: bool = attrs.field(kw_only=True)
    _connection: h11.Connection = attrs.field(init=False)
    _reader: RequestReader = attrs.field(init=False)
    _method: str = attrs.field(default="", init=False)
    _is_broken: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        limits = self._service.limits
        self._connection = h11.Connection(
            h11.SERVER, max_incomplete_event_size=limits.header_bytes
        )
        self._reader = RequestReader(
            self._wire,
            self._connection,
            limits=limits,
            budget=self._service.budget,
            has_loopback_bind=self._has_loopback_bind,
        )

    async def run(self) -> None:
        """Serve requests until either side ends the connection."""
        try:
            idle_s = self._service.limits.header_s
            while await self._is_woken(idle_s) and await self._serve_one():
                self._connection.start_next_cycle()
                idle_s = self._service.limits.idle_s
        except PeerGoneError as error:
            logger.debug("event=http_client_gone reason=%r", str(error))

    async def refuse(self, refusal: HttpRefusalError) -> None:
        """Answer with a refusal and end the connection.

        Raises:
            PeerGoneError: The client did not wait for it.
        """
        if self._connection.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        exchange = Exchange(
            self._wire, self._connection, method=self._method, is_last=True
        )
        await exchange.respond(self._shape(refusal.status, refusal.message))
        with trio.move_on_after(self._service.limits.linger_s):
            await self._wire.linger()

    async def _is_woken(self, idle_s: float) -> bool:
        """Wait for the first byte of a request; false when it is time to close."""
        if self._connection.trailing_data[0]:
            return True
        if self._service.is_draining:
            return False
        with trio.move_on_after(idle_s) as scope:
            self._service.idle_scopes.add(scope)
            try:
                await self._wire.wait_readable()
            finally:
                self._service.idle_scopes.discard(scope)
        return not scope.cancelled_caught

    async def _serve_one(self) -> bool:
        """Serve one request; true when another one may follow."""
        try:
            head = await self._reader.read_head()
            if head is None:
                return False
            self._method = head.method.decode("ascii")
            request = await self._reader.read_body(head)
        except HttpRefusalError as refusal:
            await self.refuse(refusal)
            return False
        try:
            await self._answer(request)
        finally:
            self._service.budget.give_back(len(request.body))
        both_done = {h11.DONE} == set(self._connection.states.values())
        return both_done and not self._is_broken and not self._service.is_draining

    async def _answer(self, request: HttpRequest) -> None:
        exchange = Exchange(
            self._wire,
            self._connection,
            method=request.method,
            is_last=self._service.is_draining,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, nursery.cancel_scope)
            nursery.start_soon(self._ping, exchange, nursery.cancel_scope)
            await self._handle(request, exchange)
            nursery.cancel_scope.cancel()

    async def _handle(self, request: HttpRequest, exchange: Exchange) -> None:
        try:
            await self._call_handler(request, exchange)
            if not exchange.is_begun:
                await exchange.respond(self._shape(500, "the request got no answer"))
        except PeerGoneError as error:
            self._lose_client(str(error))

    async def _call_handler(self, request: HttpRequest, exchange: Exchange) -> None:
        try:
            await self._service.handler(request, exchange)
        except PeerGoneError:
            raise
        # The guard: a fault in answering one request ends that request only.
        except Exception:
            logger.exception("event=http_handler_failed path=%r", request.path)
            self._is_broken = True
            if not exchange.is_begun:
                message = "internal error; the server's log has the cause"
                await exchange.respond(self._shape(500, message))

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Cancel the request when the client hangs up."""
        kept_bytes = 0
        try:
            while data := await self._wire.receive(_WATCH_READ_BYTES):
                self._connection.receive_data(data)
                kept_bytes += len(data)
                if kept_bytes > _PIPELINED_BYTES:
                    return
        except PeerGoneError as error:
            self._lose_client(str(error))
        else:
            self._lose_client("client closed while waiting for the answer")
        scope.cancel()

    async def _ping(self, exchange: Exchange, scope: trio.CancelScope) -> None:
        try:
            await exchange.send_pings()
        except PeerGoneError as error:
            self._lose_client(str(error))
            scope.cancel()

    def _lose_client(self, reason: str) -> None:
        logger.debug("event=http_client_gone reason=%r", reason)
        self._is_broken = True

    def _shape(self, status: int, message: str) -> HttpResponse:
        return self._service.refusal_shape(status, message)
