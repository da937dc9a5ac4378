"""From the telemetry ring to the document that `skippyctl telemetry` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.admin import schema
from skippyd.core.telemetry.figures import figures
from skippyd.core.telemetry.names import Attribute
from skippyd.core.telemetry.span import NS_PER_MS, NS_PER_US


if TYPE_CHECKING:
    from skippyd.admin.wishes import After
    from skippyd.core.telemetry.figures import Quantiles
    from skippyd.core.telemetry.ring import Numbered, TelemetryRing

WINDOW_MS = 60_000
MOST_SPANS = 1000
"""A document stays far below a message's limit."""


def telemetry_page(
    ring: TelemetryRing,
    wish: After,
    *,
    now_unix_ns: int,
    safe_mode: bool,
    window_ms: int = WINDOW_MS,
) -> schema.Telemetry:
    """Figures of the last minute, and the newest spans after the asked one."""
    window_ns = window_ms * NS_PER_MS
    found = figures(ring.since(now_unix_ns - window_ns), window_ns)
    statistics = ring.statistics()
    page = ring.after(wish.after, min(wish.limit, MOST_SPANS))
    return schema.Telemetry(
        window_ms=window_ms,
        safe_mode=safe_mode,
        requests_per_minute=round(found.requests_per_minute, 3),
        prompt_tokens_per_s=round(found.prompt_tokens_per_s, 3),
        completion_tokens_per_s=round(found.completion_tokens_per_s, 3),
        failed_requests=found.failed_requests,
        ttft=_distribution(found.ttft),
        tpot=_distribution(found.tpot),
        queue_wait=_distribution(found.queue_wait),
        lock_wait=_distribution(found.lock_wait),
        queue_depth=found.queue_depth,
        ring=schema.RingRow(
            capacity=statistics.capacity,
            kept=statistics.kept,
            recorded=statistics.recorded,
            dropped=statistics.dropped,
            lost=statistics.lost,
        ),
        items=tuple(_row(each, safe_mode=safe_mode) for each in page.items),
    )


def _distribution(found: Quantiles) -> schema.Distribution:
    return schema.Distribution(
        count=found.count,
        p50_us=found.p50_us,
        p95_us=found.p95_us,
        max_us=found.max_us,
    )


def _row(numbered: Numbered, *, safe_mode: bool) -> schema.SpanRow:
    span = numbered.span
    attributes = {name.value: _text(value) for name, value in span.attributes.items()}
    if safe_mode:
        attributes[Attribute.SAFE_MODE.value] = "true"
    return schema.SpanRow(
        sequence=numbered.sequence,
        name=span.name.value,
        start_unix_ms=span.start_unix_ns // NS_PER_MS,
        elapsed_us=span.elapsed_ns // NS_PER_US,
        attributes=attributes,
    )


def _text(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
