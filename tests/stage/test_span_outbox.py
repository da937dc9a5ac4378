"""Spans wait for the daemon, bounded, and what goes is counted."""

from __future__ import annotations

import json

import pytest

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.span import Span, span
from skippyd.daemon.supervisor import EVENT_MAX_BYTES
from skippyd.stage.span_outbox import (
    LONGEST_TEXT,
    MOST_SPANS,
    SpanBatch,
    SpanOutbox,
    batch_fields,
    parse_batch,
)


def a_span(number: int = 1, **attributes: float | str) -> Span:
    named = {Attribute[name]: value for name, value in attributes.items()}
    return span(SpanName.OPENAI_REQUEST_SUMMARY, number, number + 5, named)


def test_spans_are_taken_once_and_in_their_order() -> None:
    outbox = SpanOutbox()
    spans = tuple(a_span(number) for number in range(1, 4))
    for each in spans:
        outbox.record(each)
    assert outbox.take(2) == SpanBatch(spans[:2])
    assert outbox.take() == SpanBatch(spans[2:])
    assert outbox.take() == SpanBatch()


def test_the_oldest_go_when_nobody_takes_them_and_are_counted_once() -> None:
    outbox = SpanOutbox(capacity=2)
    for number in range(1, 6):
        outbox.record(a_span(number))
    assert outbox.take() == SpanBatch((a_span(4), a_span(5)), dropped=3)
    assert outbox.take().dropped == 0


def test_what_was_said_is_what_is_heard() -> None:
    batch = SpanBatch((a_span(TTFT_MS=1.25, STAGE_ID="stage-0", STEPS=3),), dropped=7)
    assert parse_batch(json.loads(json.dumps(batch_fields(batch)))) == batch


def test_a_full_event_fits_a_line() -> None:
    every = {name.name: 1234567.125 for name in list(Attribute)[:8]}
    batch = SpanBatch((a_span(1 << 62, **every),) * MOST_SPANS)
    assert len(json.dumps(batch_fields(batch))) < EVENT_MAX_BYTES


def test_long_texts_are_cut() -> None:
    fields = batch_fields(SpanBatch((a_span(STAGE_ID="x" * 9999),)))
    (heard,) = parse_batch(fields).spans
    assert heard.attributes[Attribute.STAGE_ID] == "x" * LONGEST_TEXT


@pytest.mark.parametrize(
    "change",
    [
        {"items": None},
        {"items": [[]] * (MOST_SPANS + 1)},
        {"items": [["odd.name", 1, 2, {}]]},
        {"items": [[SpanName.RECV.value, 2, 1, {}]]},
        {"items": [[SpanName.RECV.value, 1, 2, {"odd.attribute": 1}]]},
        {"items": [[SpanName.RECV.value, 1, 2, {Attribute.TTFT_MS.value: None}]]},
        {"dropped": None},
        {"dropped": -1},
    ],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"no |not a valid|drops"):
        parse_batch(batch_fields(SpanBatch()) | change)
