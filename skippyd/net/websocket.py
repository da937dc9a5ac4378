"""Text messages over a WebSocket on any trio stream, with a bound on every wait.

Theory of operation: `trio_websocket` runs a reader task in a nursery that the context
managers here own.  The stream below it is tapped, because that library forgets why a
stream broke, and because it would wait for ever for a handshake that can no longer
come.  Whatever goes wrong surfaces as one `ChannelClosedError` with the reason; errors
of the caller's own block pass through as they are, never in a group.
"""

from __future__ import annotations

import math
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    HandshakeError,
    WebSocketConnection,
    wrap_client_stream,
    wrap_server_stream,
)
from wsproto.utilities import ProtocolError

from skippyd.errors import ExitCode, LocalProtocolError, SkippyError
from skippyd.net.broken import broken_reason
from skippyd.units import MIB


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

NORMAL_CLOSURE = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
NOT_TEXT = 1003
POLICY_VIOLATION = 1008
TOO_BIG = 1009

_LONGEST_REASON_BYTES = 123
"""A close frame holds 125 bytes, two of them the code (RFC 6455, 5.5)."""

_LEAVING_S = 0.05
"""For a close frame to leave; a full send buffer is not waited for."""

_ENDED_WITHOUT_WORDS = "the other side ended the connection"
_SHOWN_BODY_BYTES = 512
_QUIET = (
    ConnectionClosed,
    HandshakeError,
    ProtocolError,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
)


class ChannelClosedError(SkippyError):
    """The channel is closed or never opened; the message says why."""

    exit_code = ExitCode.UNREACHABLE


@attrs.frozen(kw_only=True)
class WebSocketLimits:
    """What a peer may cost.

    Args:
        handshake_s: Deadline of the opening handshake.
        send_s: Deadline of one message to leave; a peer that does not read is cut off.
        close_s: How long last words may take.
        message_characters: Longest message both ways.
        queued_messages: Messages read but not taken yet.
    """

    handshake_s: float = 5.0
    send_s: float = 5.0
    close_s: float = 1.0
    message_characters: int = MIB
    queued_messages: int = 1


DEFAULT_LIMITS = WebSocketLimits()


@attrs.define(eq=False)
class _TappedStream(trio.abc.Stream):
    """A stream that remembers why it broke and tells when it ended."""

    _stream: trio.abc.Stream
    ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    reason: str = attrs.field(default="", init=False)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError as error:
            self._note(error)
            raise

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            received = await self._stream.receive_some(max_bytes)
        except trio.BrokenResourceError as error:
            self._note(error)
            raise
        if not received:
            self.ended.set()
        return received

    async def aclose(self) -> None:
        self.ended.set()
        await self._stream.aclose()

    def _note(self, error: trio.BrokenResourceError) -> None:
        if not self.reason:
            self.reason = f"the connection broke: {broken_reason(error)}"
        self.ended.set()


@attrs.define(eq=False)
class WebSocketChannel:
    """An open channel of text messages; one task receives, any may send.

    Args:
        path: The path that the client asked for.
    """

    path: str
    _connection: WebSocketConnection
    _stream: _TappedStream
    _limits: WebSocketLimits
    _said: str = attrs.field(default="", init=False)

    @property
    def said(self) -> str:
        """Why this side has closed the channel; empty when it has not, or not said."""
        return self._said

    async def send(self, text: str) -> None:
        """Send one message.

        Raises:
            LocalProtocolError: It is longer than any peer may take.
            ChannelClosedError: The channel is closed, or the peer does not read; then
                the connection is given up, for a message may be half way out.
        """
        limit = self._limits.message_characters
        if len(text) > limit:
            raise LocalProtocolError(
                f"a message of {len(text)} characters is over the limit of {limit}; "
                "it was not sent"
            )
        with trio.move_on_after(self._limits.send_s) as scope:
            try:
                await self._connection.send_message(text)
            except (*_QUIET,) as error:
                raise ChannelClosedError(self._why(error)) from error
        if scope.cancelled_caught:
            self._said = f"the peer read nothing for {self._limits.send_s:g} s"
            await trio.aclose_forcefully(self._stream)
            raise ChannelClosedError(self._said)

    async def receive(self) -> str:
        """Wait for the next message.

        Raises:
            ChannelClosedError: No more will come.
        """
        try:
            message = await self._connection.get_message()
        except ConnectionClosed as error:
            raise ChannelClosedError(self._why(error)) from error
        if isinstance(message, str):
            return message
        await self.close(NOT_TEXT, "messages are text")
        raise ChannelClosedError("the peer sent bytes; messages are text")

    async def ping(self) -> float:
        """Measure one round trip, in milliseconds; the peer's reader answers at once.

        Raises:
            ChannelClosedError: The channel is closed.
        """
        begun = trio.current_time()
        try:
            await self._connection.ping()
        except ConnectionClosed as error:
            raise ChannelClosedError(self._why(error)) from error
        return (trio.current_time() - begun) * 1000

    async def close(self, code: int = NORMAL_CLOSURE, reason: str = "") -> None:
        """Say why and close, within the limit for last words; harmless when closed."""
        self._said = self._said or reason
        await self._say_goodbye(code, reason, self._limits.close_s)

    async def leave(self) -> None:
        """Close because this side goes down; no answer is waited for.

        The reader that would see it is cancelled as well.
        """
        self._said = self._said or "this side goes down"
        await self._say_goodbye(GOING_AWAY, "the other side goes down", _LEAVING_S)

    async def _say_goodbye(self, code: int, reason: str, patience_s: float) -> None:
        with trio.CancelScope(shield=True, deadline=_in(patience_s)):
            # Cancelled half way, this still closes the stream.
            await self._connection.aclose(code, _short(reason) or None)
        with trio.CancelScope(shield=True, deadline=_in(patience_s)):
            # Closing by the library is left out after an oversized message.
            await self._stream.aclose()

    def _why(self, error: Exception) -> str:
        return self._said or _why(error, self._stream)


@asynccontextmanager
async def accept_websocket(
    stream: trio.abc.Stream,
    *,
    paths: Collection[str],
    limits: WebSocketLimits = DEFAULT_LIMITS,
) -> AsyncIterator[WebSocketChannel]:
    """Answer the opening handshake of a client; the stream is closed at the end.

    Args:
        stream: A connected stream; TLS handshakes are made by the first byte moved.
        paths: What is served; anything else is answered 404.
        limits: What the client may cost.

    Raises:
        ChannelClosedError: No channel came about, or it is closed.
    """
    tapped = _TappedStream(stream)

    async def accept(nursery: trio.Nursery) -> WebSocketChannel:
        request = await wrap_server_stream(
            nursery,
            tapped,
            message_queue_size=limits.queued_messages,
            max_message_size=limits.message_characters,
        )
        if request.path not in paths:
            await request.reject(404, body=b"no such path\n")
            raise ChannelClosedError(
                f"the client asked for path {_short(request.path)!r}"
            )
        connection = await request.accept()
        return WebSocketChannel(request.path, connection, tapped, limits)

    async with _session(tapped, accept, limits) as channel:
        yield channel


@asynccontextmanager
async def open_websocket(
    stream: trio.abc.Stream,
    *,
    host: str,
    path: str,
    limits: WebSocketLimits = DEFAULT_LIMITS,
) -> AsyncIterator[WebSocketChannel]:
    """Make the opening handshake as a client; the stream is closed at the end.

    Raises:
        ChannelClosedError: No channel came about, or it is closed.
    """
    tapped = _TappedStream(stream)

    async def connect(nursery: trio.Nursery) -> WebSocketChannel:
        connection = await wrap_client_stream(
            nursery,
            tapped,  # type: ignore[arg-type] # any stream will do
            host,
            path,
            message_queue_size=limits.queued_messages,
            max_message_size=limits.message_characters,
        )
        return WebSocketChannel(path, connection, tapped, limits)

    async with _session(tapped, connect, limits) as channel:
        yield channel


@asynccontextmanager
async def _session(
    stream: _TappedStream,
    open_: Callable[[trio.Nursery], Awaitable[WebSocketChannel]],
    limits: WebSocketLimits,
) -> AsyncIterator[WebSocketChannel]:
    failure: BaseException | None = None
    channel: WebSocketChannel | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                channel = await _opened(stream, nursery, open_, limits)
                try:
                    yield channel
                finally:
                    is_cancelled = trio.current_effective_deadline() == -math.inf
                    await (channel.leave() if is_cancelled else channel.close())
            finally:
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        failure = _one_of(group, stream, "" if channel is None else channel.said)
    finally:
        await trio.aclose_forcefully(stream)
    # Outside of the handler: the group would become the context of its own member.
    if failure is not None:
        raise failure


async def _opened(
    stream: _TappedStream,
    nursery: trio.Nursery,
    open_: Callable[[trio.Nursery], Awaitable[WebSocketChannel]],
    limits: WebSocketLimits,
) -> WebSocketChannel:
    async def give_up_at_the_end(scope: trio.CancelScope) -> None:
        await stream.ended.wait()
        scope.cancel()

    channel: WebSocketChannel | None = None
    with (
        trio.move_on_after(limits.handshake_s) as deadline,
        trio.CancelScope() as scope,
    ):
        nursery.start_soon(give_up_at_the_end, scope)
        channel = await open_(nursery)
    if channel is not None:
        return channel
    if deadline.cancelled_caught:
        raise ChannelClosedError(
            f"the opening handshake took longer than {limits.handshake_s:g} s"
        )
    raise ChannelClosedError(stream.reason or _ENDED_WITHOUT_WORDS)


def _one_of(
    group: BaseExceptionGroup, stream: _TappedStream, said: str
) -> BaseException:
    """Choose what the caller sees: its own error, else why the channel ended."""
    quiet, own = group.split(_QUIET)
    if own is not None:
        leaves = [*_leaves(own)]
        loud = [leaf for leaf in leaves if not isinstance(leaf, trio.Cancelled)]
        if len(loud) > 1:
            return own
        return (loud or leaves)[0]
    assert quiet is not None
    return ChannelClosedError(said or _why(_leaves(quiet)[0], stream))


def _leaves(group: BaseExceptionGroup) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def _why(error: BaseException, stream: _TappedStream) -> str:
    match error:
        case ConnectionRejected():
            body = (error.body or b"")[:_SHOWN_BODY_BYTES].decode(errors="replace")
            return f"the server answered {error.status_code}: {body.strip()}"
        case ConnectionClosed(reason=reason) if reason is not None:
            if reason.reason:
                return str(reason.reason)
            return stream.reason or _ENDED_WITHOUT_WORDS
        case _:
            return stream.reason or str(error) or _ENDED_WITHOUT_WORDS


def _short(text: str) -> str:
    return text.encode()[:_LONGEST_REASON_BYTES].decode(errors="ignore")


def _in(seconds: float) -> float:
    return trio.current_time() + seconds
