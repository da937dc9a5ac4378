"""JSON-RPC 2.0 on a channel of text messages, both sides alike.

Theory of operation: `RpcConnection.run` is the only reader.  It hands requests to the
handler, one task each, up to a limit; above it they are refused at once, so the reader
never waits for a handler and a broken connection is noticed while requests are open.
Replies find their caller by id.  When the channel ends, every open call fails with the
reason and every handler is cancelled.  Deadlines are cancel scopes of the callers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from skippyd.errors import LocalProtocolError, SkippyError
from skippyd.net.jsonrpc_messages import (
    Call,
    Failure,
    Message,
    RequestId,
    Result,
    RpcCode,
    RpcError,
    encode_message,
    invalid_request,
    parse_message,
)
from skippyd.net.websocket import PROTOCOL_ERROR, ChannelClosedError


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


class TextChannel(Protocol):
    """What JSON-RPC needs below it; `net.websocket.WebSocketChannel` is one."""

    async def send(self, text: str) -> None:
        """Send one message or raise `ChannelClosedError`."""
        ...

    async def receive(self) -> str:
        """Wait for a message or raise `ChannelClosedError`."""
        ...

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Close, saying why."""
        ...


@attrs.frozen(kw_only=True)
class RpcLimits:
    """What a peer may cost.

    Args:
        served_requests: Requests of the peer that are worked on at once.
        open_calls: Own requests that wait for a reply at once.
    """

    served_requests: int = 32
    open_calls: int = 64


@attrs.define(eq=False)
class _OpenCall:
    done: trio.Event = attrs.field(factory=trio.Event, init=False)
    value: object = attrs.field(default=None, init=False)
    error: SkippyError | None = attrs.field(default=None, init=False)

    def finish(self, value: object, error: SkippyError | None) -> None:
        self.value, self.error = value, error
        self.done.set()


async def refuse_everything(method: str, _params: object) -> object:
    """Handle requests of a peer that has none to make."""
    raise RpcError(RpcCode.UNKNOWN_METHOD, f"no method {method!r} is served here")


def ignore_notification(_method: str, _params: object) -> None:
    """Handle notifications that nobody waits for."""


@attrs.define(eq=False)
class RpcConnection:
    """Requests and notifications both ways on one channel.

    Args:
        channel: An open channel; closed by whoever opened it.
        handler: Answers the peer's requests.
        on_notification: Takes the peer's notifications; must not block. An `RpcError`
            from it ends the connection with its message.
        limits: What the peer may cost.
    """

    _channel: TextChannel
    _handler: Callable[[str, object], Awaitable[object]] = attrs.field(
        default=refuse_everything, kw_only=True
    )
    _on_notification: Callable[[str, object], None] = attrs.field(
        default=ignore_notification, kw_only=True
    )
    _limits: RpcLimits = attrs.field(factory=RpcLimits, kw_only=True)
    _calls: dict[int, _OpenCall] = attrs.field(factory=dict, init=False)
    _served: set[RequestId] = attrs.field(factory=set, init=False)
    _next_id: int = attrs.field(default=1, init=False)
    _ended: str | None = attrs.field(default=None, init=False)

    @property
    def open_calls(self) -> int:
        """Own requests that wait for their reply."""
        return len(self._calls)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> str:
        """Read until the channel ends and return why it did; must run to call."""
        reason = "this side ended the connection"
        try:
            async with trio.open_nursery() as handlers:
                task_status.started()
                reason = await self._read(handlers)
                handlers.cancel_scope.cancel()
        finally:
            self._end(reason)
        return reason

    async def call(self, method: str, params: object = None) -> object:
        """Ask the peer and wait for its answer; bound it with a cancel scope.

        Raises:
            RpcError: The peer answered with an error, or too many calls are open.
            ChannelClosedError: No answer can come any more.
        """
        if self._ended is not None:
            raise ChannelClosedError(self._ended)
        if len(self._calls) >= self._limits.open_calls:
            raise RpcError(
                RpcCode.TOO_MANY_REQUESTS,
                f"{len(self._calls)} requests to this peer wait for an answer already",
            )
        call_id, self._next_id = self._next_id, self._next_id + 1
        call = self._calls[call_id] = _OpenCall()
        try:
            message = Call(method=method, params=params, id=call_id)
            await self._channel.send(encode_message(message))
            await call.done.wait()
        finally:
            del self._calls[call_id]
        if call.error is not None:
            raise call.error
        return call.value

    async def notify(self, method: str, params: object = None) -> None:
        """Tell the peer something that needs no answer.

        Raises:
            ChannelClosedError: The channel is closed, or the peer does not read.
        """
        message = Call(method=method, params=params, id=None)
        await self._channel.send(encode_message(message))

    async def _read(self, handlers: trio.Nursery) -> str:
        try:
            while True:
                text = await self._channel.receive()
                try:
                    await self._take(parse_message(text), handlers)
                except RpcError as error:
                    return await self._give_up(error)
        except ChannelClosedError as error:
            return str(error)

    async def _give_up(self, error: RpcError) -> str:
        # Nothing that such a peer says can be relied on.
        await self._channel.send(encode_message(Failure(None, error)))
        await self._channel.close(PROTOCOL_ERROR, error.message)
        return f"the peer sent what cannot be used: {error.message}"

    async def _take(self, message: Message, handlers: trio.Nursery) -> None:
        match message:
            case Call(method=method, params=params, id=None):
                self._on_notification(method, params)
            case Call(id=request_id):
                assert request_id is not None
                await self._begin(message, request_id, handlers)
            case Result(id=answered, value=value):
                self._finish(answered, value, None)
            case Failure(id=failed, error=error) if failed is not None:
                self._finish(failed, None, error)
            case Failure(error=error):
                logger.warning("event=rpc_peer_complains reason=%r", error.message)

    def _finish(
        self, call_id: RequestId, value: object, error: RpcError | None
    ) -> None:
        call = self._calls.get(call_id) if isinstance(call_id, int) else None
        # The answer to a call that was given up is no error.
        if call is not None:
            call.finish(value, error)

    async def _begin(
        self, call: Call, request_id: RequestId, handlers: trio.Nursery
    ) -> None:
        if request_id in self._served:
            await self._refuse(
                request_id, invalid_request("a request of this id is open")
            )
            return
        if len(self._served) >= self._limits.served_requests:
            message = f"{len(self._served)} requests are open; wait for one to end"
            error = RpcError(RpcCode.TOO_MANY_REQUESTS, message)
            await self._refuse(request_id, error)
            return
        self._served.add(request_id)
        handlers.start_soon(self._serve, call, request_id)

    async def _refuse(self, request_id: RequestId, error: RpcError) -> None:
        await self._channel.send(encode_message(Failure(request_id, error)))

    async def _serve(self, call: Call, request_id: RequestId) -> None:
        try:
            answer = await self._answer(call, request_id)
        finally:
            # Free before the answer leaves: its receiver may use the id again.
            self._served.discard(request_id)
        try:
            await self._send_answer(answer, request_id)
        except ChannelClosedError as error:
            # The reader sees the same end and reports it.
            logger.debug("event=rpc_answer_lost reason=%r", str(error))

    async def _answer(self, call: Call, request_id: RequestId) -> str:
        try:
            value = await self._handler(call.method, call.params)
            return encode_message(Result(request_id, value))
        except RpcError as error:
            return encode_message(Failure(request_id, error))
        # The guard: a fault of one handler ends that request only.
        except Exception:
            logger.exception("event=rpc_handler_failed method=%s", call.method)
            message = f"{call.method} failed inside this node; its log says more"
            failure = Failure(request_id, RpcError(RpcCode.INTERNAL, message))
            return encode_message(failure)

    async def _send_answer(self, answer: str, request_id: RequestId) -> None:
        try:
            await self._channel.send(answer)
        except LocalProtocolError as error:
            too_long = RpcError(RpcCode.INTERNAL, f"the answer is too long: {error}")
            await self._refuse(request_id, too_long)

    def _end(self, reason: str) -> None:
        self._ended = reason
        for call in self._calls.values():
            call.finish(None, ChannelClosedError(reason))
