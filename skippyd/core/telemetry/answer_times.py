"""One answer at stage 0: when its tokens came, how many, how it ended."""

from __future__ import annotations

import attrs

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.span import NS_PER_MS, AttributeValue, Span, span


CANCELLED_STATUS = 502
"""Of an answer that ended without a word: its server stopped."""


@attrs.define
class AnswerTimes:
    """Told by whoever hands the tokens on, who also says what time it is.

    Args:
        started_unix_ns: When its prompt was known in tokens.
        status: HTTP status of its end.
    """

    started_unix_ns: int
    prompt_tokens: int = attrs.field(kw_only=True)
    completion_tokens: int = 0
    status: int = CANCELLED_STATUS
    first_unix_ns: int = 0
    last_unix_ns: int = 0

    def came(self, now_unix_ns: int) -> None:
        """One or more tokens have come."""
        self.last_unix_ns = now_unix_ns
        if not self.first_unix_ns:
            self.first_unix_ns = now_unix_ns

    def summary(self, now_unix_ns: int, stage_id: str = "") -> Span:
        """The span of the whole answer."""
        attributes: dict[Attribute, AttributeValue] = {
            Attribute.HTTP_STATUS: self.status,
            Attribute.PROMPT_TOKENS: self.prompt_tokens,
            Attribute.COMPLETION_TOKENS: self.completion_tokens,
        }
        if stage_id:
            attributes[Attribute.STAGE_ID] = stage_id
        if self.first_unix_ns:
            ttft_ns = max(0, self.first_unix_ns - self.started_unix_ns)
            attributes[Attribute.TTFT_MS] = ttft_ns / NS_PER_MS
            steps = self.completion_tokens - 1
            if steps > 0:
                between_ns = max(0, self.last_unix_ns - self.first_unix_ns)
                attributes[Attribute.TPOT_MS] = between_ns / steps / NS_PER_MS
        return span(
            SpanName.OPENAI_REQUEST_SUMMARY,
            self.started_unix_ns,
            now_unix_ns,
            attributes,
        )
