from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.telemetry.figures import Quantiles, figures, quantiles
from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.span import Span, span


MINUTE_NS = 60_000_000_000


def request(status: int, prompt: int, completion: int, ttft_ms: float) -> Span:
    return span(
        SpanName.OPENAI_REQUEST_SUMMARY,
        0,
        1,
        {
            Attribute.HTTP_STATUS: status,
            Attribute.PROMPT_TOKENS: prompt,
            Attribute.COMPLETION_TOKENS: completion,
            Attribute.TTFT_MS: ttft_ms,
        },
    )


def test_nothing_measured_is_not_zero() -> None:
    found = figures((), MINUTE_NS)
    assert found.ttft == Quantiles(count=0, p50_us=None, p95_us=None, max_us=None)
    assert found.requests_per_minute == 0
    assert found.queue_depth == 0


def test_rates_count_request_summaries_only() -> None:
    token = span(SpanName.OPENAI_DECODE_TOKEN, 0, 1, {Attribute.COMPLETION_TOKENS: 999})
    spans = (request(200, 100, 20, 50), token, request(503, 20, 0, 70))
    found = figures(spans, MINUTE_NS)
    assert found.requests_per_minute == 2
    assert found.failed_requests == 1
    assert found.prompt_tokens_per_s == 2.0
    assert found.completion_tokens_per_s == pytest.approx(1 / 3)
    assert found.ttft == Quantiles(count=2, p50_us=50_000, p95_us=70_000, max_us=70_000)


def test_a_request_that_two_parts_saw_counts_once() -> None:
    """The first stage leaves a summary, the door that passed it on another."""
    passed = span(
        SpanName.OPENAI_HTTP_REQUEST,
        0,
        1,
        {Attribute.TTFT_MS: 90, Attribute.COMPLETION_TOKENS: 20},
    )
    both = figures((request(200, 100, 20, 50), passed), MINUTE_NS)
    assert both.requests_per_minute == 1
    assert (both.ttft.count, both.ttft.max_us) == (1, 50_000)
    alone = figures((passed,), MINUTE_NS)
    assert (alone.requests_per_minute, alone.ttft.max_us) == (1, 90_000)
    assert alone.completion_tokens_per_s == pytest.approx(1 / 3)


def test_waits_are_taken_from_every_span_and_the_queue_from_the_last() -> None:
    spans = tuple(
        span(
            SpanName.SCHEDULER_ITERATION,
            0,
            1,
            {Attribute.LOCK_WAIT_MS: wait, Attribute.QUEUE_DEPTH: depth},
        )
        for wait, depth in ((0.5, 3), (1.5, 1))
    )
    found = figures(spans, MINUTE_NS)
    assert found.lock_wait == Quantiles(count=2, p50_us=500, p95_us=1500, max_us=1500)
    assert found.queue_depth == 1


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_quantiles_are_times_that_were_measured(times_ms: list[float]) -> None:
    found = quantiles(times_ms)
    known = {round(each * 1000) for each in times_ms}
    assert {found.p50_us, found.p95_us, found.max_us} <= known
    assert found.max_us == max(known)
    assert found.p50_us is not None
    assert found.p95_us is not None
    at_most = sum(round(each * 1000) <= found.p95_us for each in times_ms)
    assert at_most >= 0.95 * len(times_ms)
    assert found.p50_us <= found.p95_us <= found.max_us
