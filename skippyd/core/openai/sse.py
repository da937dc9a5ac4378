"""Server-sent events of a streamed answer.

Encoding a whole chunk costs several microseconds a token, so everything around
the text is built once per answer and only the text is escaped.
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING

import attrs

from skippyd.core.openai.responses import json_bytes


if TYPE_CHECKING:
    from skippyd.core.openai.errors import ApiError
    from skippyd.core.openai.responses import AnswerHead, FinishReason, Usage


DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"

_TEXT = "\0text\0"
_END = b"}\n\n"
_END_WITH_USAGE = b',"usage":null}\n\n'


@attrs.frozen
class EventEncoder:
    """Events of one answer.

    Args:
        opening: Event before the first text; empty for completions.
    """

    opening: bytes
    _head: bytes
    _before_text: bytes = attrs.field(kw_only=True)
    _after_text: bytes = attrs.field(kw_only=True)
    _last_piece: dict[str, object] = attrs.field(kw_only=True)
    _end: bytes = attrs.field(kw_only=True)

    @classmethod
    def for_chat(cls, head: AnswerHead, *, include_usage: bool) -> EventEncoder:
        """Events of a chat; the first one says that the assistant speaks."""
        event_head, end = _frame(head, "chat.completion.chunk", include_usage)
        opening = event_head + _choices({"delta": {"role": "assistant"}}, None) + end
        before, after = _around_text(_choices({"delta": {"content": _TEXT}}, None))
        return cls(
            opening,
            event_head,
            before_text=event_head + before,
            after_text=after + end,
            last_piece={"delta": {}},
            end=end,
        )

    @classmethod
    def for_completion(cls, head: AnswerHead, *, include_usage: bool) -> EventEncoder:
        """Events of a continued text; nothing comes before the first text."""
        event_head, end = _frame(head, "text_completion", include_usage)
        before, after = _around_text(_choices({"text": _TEXT}, None))
        return cls(
            b"",
            event_head,
            before_text=event_head + before,
            after_text=after + end,
            last_piece={"text": ""},
            end=end,
        )

    def text(self, text: str) -> bytes:
        """Event of one piece of text."""
        return self._before_text + _escaped(text) + self._after_text

    def finish(self, reason: FinishReason, usage: Usage) -> bytes:
        """The last events: finish reason, usage when asked for, end of stream."""
        events = self._head + _choices(self._last_piece, reason) + self._end
        if self._end == _END_WITH_USAGE:
            document = json_bytes(usage.document())
            events += self._head + b',"choices":[],"usage":' + document + _END
        return events + DONE


def _frame(head: AnswerHead, kind: str, include_usage: bool) -> tuple[bytes, bytes]:
    document = json_bytes(
        {
            "id": head.answer_id,
            "object": kind,
            "created": head.created_unix_s,
            "model": head.model,
            "seed": head.seed,
        }
    )
    # The closing brace is left off: choices follow.
    return b"data: " + document[:-1], _END_WITH_USAGE if include_usage else _END


def error_events(error: ApiError) -> bytes:
    """An error after the stream began: one event, then the end of the stream."""
    return b"data: " + error.body() + b"\n\n" + DONE


def _escaped(text: str) -> bytes:
    return encode_basestring_ascii(text).encode("ascii")


def _around_text(choices: bytes) -> tuple[bytes, bytes]:
    before, after = choices.split(_escaped(_TEXT))
    return before, after


def _choices(piece: dict[str, object], finish_reason: FinishReason | None) -> bytes:
    choice = {"index": 0, **piece, "logprobs": None, "finish_reason": finish_reason}
    # Cut out of its braces: it goes behind the head of every event.
    return b"," + json_bytes({"choices": [choice]})[1:-1]
