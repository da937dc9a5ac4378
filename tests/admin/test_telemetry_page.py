from __future__ import annotations

from skippyd.admin.schema import Distribution, RingRow
from skippyd.admin.telemetry_page import telemetry_page
from skippyd.admin.wishes import After
from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.ring import TelemetryRing
from skippyd.core.telemetry.span import span


NOW_NS = 1_764_468_000_000_000_000
SECOND_NS = 1_000_000_000


def ring_with_requests(count: int, capacity: int = 8) -> TelemetryRing:
    ring = TelemetryRing(capacity)
    for place in range(count):
        end = NOW_NS - (count - place) * SECOND_NS
        ring.record(
            span(
                SpanName.OPENAI_REQUEST_SUMMARY,
                end - SECOND_NS // 2,
                end,
                {
                    Attribute.PROMPT_TOKENS: 30,
                    Attribute.COMPLETION_TOKENS: 60,
                    Attribute.TTFT_MS: 50.5,
                    Attribute.TPOT_MS: 10,
                    Attribute.HTTP_STATUS: 200,
                },
            )
        )
    return ring


def test_the_last_minute_is_worked_out_and_drops_are_shown() -> None:
    page = telemetry_page(
        ring_with_requests(10), After(), now_unix_ns=NOW_NS, safe_mode=False
    )
    assert page.requests_per_minute == 8.0
    assert (page.prompt_tokens_per_s, page.completion_tokens_per_s) == (4.0, 8.0)
    assert page.ttft == Distribution(
        count=8, p50_us=50_500, p95_us=50_500, max_us=50_500
    )
    assert page.ring == RingRow(capacity=8, kept=8, recorded=10, dropped=2)
    assert [row.sequence for row in page.items] == [3, 4, 5, 6, 7, 8, 9, 10]
    first = page.items[0]
    assert first.name == "stage.openai_request_summary"
    assert first.elapsed_us == 500_000
    assert first.attributes["llama_stage.ttft_ms"] == "50.5"


def test_only_what_was_asked_for_is_sent() -> None:
    ring = ring_with_requests(6)
    page = telemetry_page(
        ring, After(after=4, limit=10), now_unix_ns=NOW_NS, safe_mode=False
    )
    assert [row.sequence for row in page.items] == [5, 6]
    page = telemetry_page(ring, After(limit=1), now_unix_ns=NOW_NS, safe_mode=False)
    assert [row.sequence for row in page.items] == [6]


def test_older_spans_count_no_longer() -> None:
    later = NOW_NS + 120 * SECOND_NS
    page = telemetry_page(
        ring_with_requests(3), After(), now_unix_ns=later, safe_mode=False
    )
    assert page.requests_per_minute == 0
    assert page.ttft == Distribution()
    assert len(page.items) == 3


def test_safe_mode_is_on_the_page_and_on_each_span() -> None:
    page = telemetry_page(
        ring_with_requests(1), After(), now_unix_ns=NOW_NS, safe_mode=True
    )
    assert page.safe_mode
    assert page.items[0].attributes["skippy.scheduler.safe_mode"] == "true"
