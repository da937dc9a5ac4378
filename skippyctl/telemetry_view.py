"""`skippyctl telemetry` as a page: the last minute, and the newest spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.page import Piece, Tone, fields, grid, line
from skippyctl.words import clock_time, microseconds


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyctl.page import Block, Page
    from skippyd.admin.schema import Distribution, SpanRow, Telemetry

SPANS_SHOWN = 10


def telemetry_page(telemetry: Telemetry, spans: int = SPANS_SHOWN) -> Page:
    """Rates, times, drops, and so many of the newest spans."""
    return tuple(_blocks(telemetry, spans))


def _blocks(telemetry: Telemetry, spans: int) -> Iterator[Block]:
    if telemetry.safe_mode:
        yield line("SAFE MODE is on: one request at a time", tone=Tone.ALARM)
    yield fields(_rates(telemetry))
    yield line()
    head = ("time", "p50", "p95", "max", "measured")
    times = (
        ("TTFT", telemetry.ttft),
        ("TPOT", telemetry.tpot),
        ("queue wait", telemetry.queue_wait),
        ("lock wait", telemetry.lock_wait),
    )
    yield grid(head, (_time(*each) for each in times), right=head[1:])
    newest = telemetry.items[-spans:] if spans > 0 else ()
    if newest:
        yield line()
        names = ("at", "span", "took", "attributes")
        rows = map(_span, newest)
        yield grid(names, rows, right=("took",), wraps="attributes")


def _rates(telemetry: Telemetry) -> Iterator[tuple[str, str | Piece]]:
    failed = telemetry.failed_requests
    yield "window", f"last {telemetry.window_ms // 1000} s"
    yield (
        "requests",
        Piece(
            f"{telemetry.requests_per_minute:g} a minute, {failed} failed",
            Tone.WARNING if failed else Tone.PLAIN,
        ),
    )
    yield (
        "tokens",
        (
            f"{telemetry.prompt_tokens_per_s:.1f} prompt/s, "
            f"{telemetry.completion_tokens_per_s:.1f} completion/s"
        ),
    )
    yield "queue", f"{telemetry.queue_depth} waiting"
    ring = telemetry.ring
    yield (
        "spans",
        Piece(
            f"{ring.recorded:,} recorded, {ring.kept:,} of {ring.capacity:,} kept, "
            f"{ring.dropped:,} dropped, {ring.lost:,} lost in stages",
            Tone.WARNING if ring.dropped or ring.lost else Tone.PLAIN,
        ),
    )


def _time(name: str, measured: Distribution) -> tuple[str, ...]:
    return (
        name,
        microseconds(measured.p50_us),
        microseconds(measured.p95_us),
        microseconds(measured.max_us),
        f"{measured.count:,}",
    )


def _span(span: SpanRow) -> tuple[str | Piece, ...]:
    # The names' first parts say nothing to people; `--json` has them whole.
    attributes = " ".join(
        f"{_last_part(key)}={value}" for key, value in span.attributes.items()
    )
    return (
        clock_time(span.start_unix_ms),
        _last_part(span.name),
        microseconds(span.elapsed_us),
        Piece(attributes, Tone.DIM),
    )


def _last_part(name: str) -> str:
    return name.rpartition(".")[2]
