from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.request_meter import RequestMeter


MS = 1_000_000
START = 1_764_468_000_000 * MS

ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
TOKEN = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'
LAST = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":31,"completion_tokens": 3}}\n\n'
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


def test_a_stream_tells_ttft_tpot_and_tokens() -> None:
    meter = RequestMeter(START, 200)
    meter.piece(ROLE, START + 5 * MS)
    for place in range(3):
        meter.piece(TOKEN, START + (50 + 10 * place) * MS)
    meter.piece(PING + LAST + DONE, START + 90 * MS)
    span = meter.finished(START + 91 * MS, {Attribute.RUN_ID: "run"})
    assert span.name is SpanName.OPENAI_HTTP_REQUEST
    assert span.elapsed_ns == 91 * MS
    assert span.attributes == {
        Attribute.HTTP_STATUS: 200,
        Attribute.COMPLETION_TOKENS: 3,
        Attribute.TTFT_MS: 50.0,
        Attribute.TPOT_MS: 10.0,
        Attribute.RUN_ID: "run",
    }


def test_stated_usage_counts_more_than_events() -> None:
    meter = RequestMeter(START, 200)
    meter.piece(TOKEN + USAGE, START + MS)
    span = meter.finished(START + MS, {})
    assert span.attributes[Attribute.PROMPT_TOKENS] == 31
    assert span.attributes[Attribute.COMPLETION_TOKENS] == 3
    assert Attribute.TPOT_MS not in span.attributes


def test_events_that_hold_several_tokens_do_not_slow_the_figures() -> None:
    meter = RequestMeter(START, 200)
    meter.piece(TOKEN, START + 10 * MS)
    meter.piece(TOKEN + USAGE, START + 30 * MS)
    span = meter.finished(START + 31 * MS, {})
    assert span.attributes[Attribute.TPOT_MS] == 10.0


def test_an_answer_that_comes_whole_tells_its_tokens_only() -> None:
    meter = RequestMeter(START, 200)
    body = b'{"text":"' + b"x" * 10_000
    meter.answer(body + b'","usage":{"prompt_tokens":7,"completion_tokens":9}}')
    span = meter.finished(START + MS, {})
    assert span.attributes == {
        Attribute.HTTP_STATUS: 200,
        Attribute.COMPLETION_TOKENS: 9,
        Attribute.PROMPT_TOKENS: 7,
    }


@pytest.mark.parametrize("body", [b"", b"{", b'{"usage":{"prompt_tokens":-1}}'])
def test_a_refusal_is_counted_with_its_status(body: bytes) -> None:
    meter = RequestMeter(START, 503)
    meter.answer(body)
    span = meter.finished(START, {})
    assert span.attributes == {
        Attribute.HTTP_STATUS: 503,
        Attribute.COMPLETION_TOKENS: 0,
    }
    assert span.elapsed_ns == 1


@given(st.integers(1, 60))
def test_it_does_not_matter_how_a_stream_is_cut(step: int) -> None:
    data = ROLE + TOKEN * 4 + PING + LAST + USAGE + DONE
    meter = RequestMeter(START, 200)
    for start in range(0, len(data), step):
        meter.piece(data[start : start + step], START + MS)
    span = meter.finished(START + MS, {})
    assert span.attributes[Attribute.COMPLETION_TOKENS] == 3
    assert meter._token_count == 4


def test_an_endless_event_is_not_kept() -> None:
    meter = RequestMeter(START, 200)
    for _ in range(100):
        meter.piece(b"x" * 10_000, START)
    assert len(meter._rest) <= 65_536


def test_an_answer_that_never_came_or_broke_off_is_lost() -> None:
    never = RequestMeter(START).finished(START, {})
    assert never.attributes[Attribute.HTTP_STATUS] == 502
    broken = RequestMeter(START, 200).finished(START, {}, is_lost=True)
    assert broken.attributes[Attribute.HTTP_STATUS] == 502
