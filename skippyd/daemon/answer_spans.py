"""Spans of answers, from what stage 0 says about each in its log.

A stage process keeps no ring of its own; its line about an ended answer has the counts.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.span import AttributeValue, span


if TYPE_CHECKING:
    from skippyd.core.telemetry.ring import TelemetryRing

DONE = re.compile(
    r"\bevent=answer_done req=\S+ prompt_tokens=(\d{1,9}) completion_tokens=(\d{1,9})\b"
)
FAILED = re.compile(r"\bevent=answer_failed req=")
STATUS_DONE, STATUS_FAILED = 200, 502


@attrs.define(eq=False)
class AnswerSpans:
    """Records one summary for each answer that a stage of this node ended.

    Args:
        ring: Takes the spans.
    """

    ring: TelemetryRing

    def take(self, stage_id: str, line: str) -> None:
        """Look at one line of a stage's log; most of them are about other things."""
        if (done := DONE.search(line)) is not None:
            counts = {
                Attribute.PROMPT_TOKENS: int(done[1]),
                Attribute.COMPLETION_TOKENS: int(done[2]),
                Attribute.HTTP_STATUS: STATUS_DONE,
            }
        elif FAILED.search(line) is not None:
            counts = {Attribute.HTTP_STATUS: STATUS_FAILED}
        else:
            return
        now_ns = time.time_ns()
        attributes: dict[Attribute, AttributeValue] = {
            Attribute.STAGE_ID: stage_id,
            **counts,
        }
        summary = span(SpanName.OPENAI_REQUEST_SUMMARY, now_ns, now_ns, attributes)
        self.ring.record(summary)
