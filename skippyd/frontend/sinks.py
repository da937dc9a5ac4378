"""Where an answer's text goes: into one document, or event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import attrs

from skippyd.core.openai.responses import Usage, chat_completion, text_completion
from skippyd.core.openai.sse import PING, EventEncoder
from skippyd.frontend.replies import id_header, reply_json


if TYPE_CHECKING:
    from skippyd.core.generation.answer import FinishReason
    from skippyd.core.openai.responses import AnswerHead
    from skippyd.net.http_exchange import Exchange


Route = Literal["chat", "completion"]


class AnswerSink(Protocol):
    """Takes one answer: `begin` once, `show` as text comes, `finish` once."""

    def begin(self, head: AnswerHead) -> None:
        """The generation runs; its seed is known."""
        ...

    async def show(self, texts: list[str]) -> None:
        """More text, one item a token."""
        ...

    async def finish(self, reason: FinishReason, usage: Usage) -> None:
        """The answer is complete."""
        ...


@attrs.define
class DocumentSink:
    """One JSON document at the end."""

    _exchange: Exchange
    _route: Route
    _request_id: str = attrs.field(kw_only=True)
    _head: AnswerHead | None = attrs.field(default=None, init=False)
    _texts: list[str] = attrs.field(factory=list, init=False)

    def begin(self, head: AnswerHead) -> None:
        """See `AnswerSink.begin`."""
        self._head = head

    async def show(self, texts: list[str]) -> None:
        """See `AnswerSink.show`."""
        self._texts += texts

    async def finish(self, reason: FinishReason, usage: Usage) -> None:
        """See `AnswerSink.finish`."""
        assert self._head is not None
        shape = chat_completion if self._route == "chat" else text_completion
        body = shape(
            self._head, "".join(self._texts), finish_reason=reason, usage=usage
        )
        await reply_json(self._exchange, body, self._request_id)


@attrs.define
class EventSink:
    """Server-sent events as the text comes."""

    _exchange: Exchange
    _route: Route
    _include_usage: bool = attrs.field(kw_only=True)
    _encoder: EventEncoder | None = attrs.field(default=None, init=False)
    _opening: bytes = attrs.field(default=b"", init=False)

    def plan(self, request_id: str, *, ping_every_s: float) -> None:
        """Announce the stream before anything can take long.

        The status stays open until the first event or ping, so that a chain that
        fails at once is still told with its own status.
        """
        self._exchange.plan_stream(
            (
                ("content-type", "text/event-stream; charset=utf-8"),
                ("cache-control", "no-cache"),
                id_header(request_id),
            ),
            ping=PING,
            ping_every_s=ping_every_s,
        )

    def begin(self, head: AnswerHead) -> None:
        """See `AnswerSink.begin`."""
        build = (
            EventEncoder.for_chat
            if self._route == "chat"
            else EventEncoder.for_completion
        )
        self._encoder = build(head, include_usage=self._include_usage)
        self._opening = self._encoder.opening

    async def show(self, texts: list[str]) -> None:
        """See `AnswerSink.show`."""
        assert self._encoder is not None
        events = b"".join(map(self._encoder.text, texts))
        if events:
            await self._exchange.write(self._take_opening() + events)

    async def finish(self, reason: FinishReason, usage: Usage) -> None:
        """See `AnswerSink.finish`."""
        assert self._encoder is not None
        events = self._take_opening() + self._encoder.finish(reason, usage)
        await self._exchange.write(events)
        await self._exchange.end_stream()

    def _take_opening(self) -> bytes:
        opening, self._opening = self._opening, b""
        return opening
