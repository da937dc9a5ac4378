"""Measures one generation by its answer: when tokens came, how many, how it ended.

Looks at server-sent events and at the usage that an answer states, never at what was
said. Whoever relays the answer feeds it and says what time it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.span import NS_PER_MS, Span, span


if TYPE_CHECKING:
    from collections.abc import Mapping

    from skippyd.core.telemetry.span import AttributeValue

NO_ANSWER = 502
LONGEST_EVENT_BYTES = 65_536
USAGE_IN_LAST_BYTES = 4096
"""Usage stands at the end of an answer; the rest of it need not be looked at."""

_TOKEN = re.compile(rb'"(?:content|text|reasoning_content)":\s*"[^"]')
_PROMPT = re.compile(rb'"prompt_tokens":\s*(\d{1,9})\b')
_COMPLETION = re.compile(rb'"completion_tokens":\s*(\d{1,9})\b')


@attrs.define
class RequestMeter:
    """One generation.

    Args:
        started_unix_ns: When its request was whole.
        status: HTTP status of the answer; that of a lost one while there is none.
    """

    started_unix_ns: int
    status: int = NO_ANSWER
    _first_ns: int | None = None
    _last_ns: int | None = None
    _token_count: int = 0
    _prompt_tokens: int | None = None
    _completion_tokens: int | None = None
    _rest: bytes = b""

    def piece(self, data: bytes, now_unix_ns: int) -> None:
        """Look at a piece of a stream of events, however it is cut."""
        *events, rest = (self._rest + data).split(b"\n\n")
        self._rest = rest[-LONGEST_EVENT_BYTES:]
        for event in events:
            if _TOKEN.search(event):
                self._token_count += 1
                self._last_ns = now_unix_ns
                if self._first_ns is None:
                    self._first_ns = now_unix_ns
            self._take_usage(event)

    def answer(self, body: bytes) -> None:
        """Look at an answer that came whole."""
        self._take_usage(body[-USAGE_IN_LAST_BYTES:])

    def finished(
        self,
        now_unix_ns: int,
        attributes: Mapping[Attribute, AttributeValue],
        *,
        is_lost: bool = False,
    ) -> Span:
        """The span of the request, with what was measured and what is given.

        Args:
            now_unix_ns: When it ended.
            attributes: What else is known of it.
            is_lost: Whether its answer broke off, whatever status it began with.
        """
        status = NO_ANSWER if is_lost else self.status
        measured: dict[Attribute, AttributeValue] = {Attribute.HTTP_STATUS: status}
        completion = self._completion_tokens
        if completion is None:
            completion = self._token_count
        measured[Attribute.COMPLETION_TOKENS] = completion
        if self._prompt_tokens is not None:
            measured[Attribute.PROMPT_TOKENS] = self._prompt_tokens
        if self._first_ns is not None and self._last_ns is not None:
            ttft_ns = self._first_ns - self.started_unix_ns
            measured[Attribute.TTFT_MS] = max(0, ttft_ns) / NS_PER_MS
            # An event may hold several tokens: the stated usage knows better.
            steps = max(completion, self._token_count) - 1
            if self._token_count > 1:
                between_ns = max(0, self._last_ns - self._first_ns)
                measured[Attribute.TPOT_MS] = between_ns / steps / NS_PER_MS
        return span(
            SpanName.OPENAI_HTTP_REQUEST,
            self.started_unix_ns,
            now_unix_ns,
            measured | dict(attributes),
        )

    def _take_usage(self, text: bytes) -> None:
        if found := _PROMPT.search(text):
            self._prompt_tokens = int(found[1])
        if found := _COMPLETION.search(text):
            self._completion_tokens = int(found[1])
