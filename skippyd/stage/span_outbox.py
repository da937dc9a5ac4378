"""Spans of a stage process until its parent takes them: bounded, and drops are counted.

Recorded by lanes and by the OpenAI server, once or twice a request and never a token.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

import attrs

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.span import Span


if TYPE_CHECKING:
    from collections.abc import Mapping

CAPACITY = 512
MOST_SPANS = 128
"""In one line to the parent, whose length is limited."""

LONGEST_TEXT = 256


@attrs.frozen
class SpanBatch:
    """Spans on their way to the daemon.

    Args:
        spans: In the order of their recording.
        dropped: How many were given up before these because nobody took them.
    """

    spans: tuple[Span, ...] = ()
    dropped: int = 0


class SpanOutbox:
    """The newest spans that nobody has taken yet; for any thread."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._spans: deque[Span] = deque(maxlen=capacity)
        self._dropped = 0
        self._lock = threading.Lock()

    def record(self, span: Span) -> None:
        """Keep a span; the oldest one goes when nobody takes them."""
        with self._lock:
            self._dropped += len(self._spans) == self._spans.maxlen
            self._spans.append(span)

    def take(self, most: int = MOST_SPANS) -> SpanBatch:
        """Take the oldest ones out, and the count of drops with them."""
        with self._lock:
            count = min(most, len(self._spans))
            spans = tuple(self._spans.popleft() for _ in range(count))
            dropped, self._dropped = self._dropped, 0
        return SpanBatch(spans, dropped)


def batch_fields(batch: SpanBatch) -> dict[str, object]:
    """What goes to the parent."""
    return {
        "items": [
            [
                span.name.value,
                span.start_unix_ns,
                span.end_unix_ns,
                {name.value: _short(v) for name, v in span.attributes.items()},
            ]
            for span in batch.spans
        ],
        "dropped": batch.dropped,
    }


def parse_batch(fields: Mapping[str, object]) -> SpanBatch:
    """Read what a stage process said.

    Raises:
        ValueError: It is not what `batch_fields` makes.
    """
    items, dropped = fields.get("items"), fields.get("dropped")
    if not isinstance(items, list) or len(items) > MOST_SPANS:
        raise ValueError(f"no list of at most {MOST_SPANS} spans")
    if type(dropped) is not int or dropped < 0:
        raise ValueError(f"{dropped!r} drops")
    return SpanBatch(tuple(map(_span, items)), dropped)


def _span(item: object) -> Span:
    match item:
        case [str(name), int(start), int(end), dict(attributes)] if 0 < start < end:
            return Span(
                name=SpanName(name),
                start_unix_ns=start,
                end_unix_ns=end,
                attributes={Attribute(n): _value(v) for n, v in attributes.items()},
            )
        case _:
            raise ValueError(f"no span: {str(item)[:80]!r}")


def _value(value: object) -> str | int | float | bool:
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    if isinstance(value, int | float):
        return value
    raise ValueError(f"no attribute: {str(value)[:80]!r}")


def _short(value: str | float | bool) -> str | float | bool:
    match value:
        case str():
            return value[:LONGEST_TEXT]
        case float():
            return round(value, 3)
        case _:
            return value
