"""The figures an operator looks at, made of the spans of a window of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.telemetry.names import Attribute, SpanName


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skippyd.core.telemetry.span import Span

NS_PER_S = 1_000_000_000
US_PER_MS = 1000
FIRST_FAILED_STATUS = 400


@attrs.frozen(kw_only=True)
class Quantiles:
    """A measured time in microseconds; None where nothing was measured."""

    count: int = 0
    p50_us: int | None = None
    p95_us: int | None = None
    max_us: int | None = None


@attrs.frozen(kw_only=True)
class Figures:
    """Rates and times of a window.

    Args:
        failed_requests: Requests that ended with a status of 400 and more.
        queue_depth: The last that was said of it.
    """

    window_ns: int
    requests_per_minute: float
    prompt_tokens_per_s: float
    completion_tokens_per_s: float
    failed_requests: int
    ttft: Quantiles
    tpot: Quantiles
    queue_wait: Quantiles
    lock_wait: Quantiles
    queue_depth: int


def figures(spans: Sequence[Span], window_ns: int) -> Figures:
    """Work the figures out.

    A request is its summary, which its first stage leaves; a node that only passes
    requests on counts those. Waits are taken from whatever measured them: for a lane
    once a request, for the engine once a request and stage.
    """
    assert window_ns > 0, window_ns
    requests = [s for s in spans if s.name is SpanName.OPENAI_REQUEST_SUMMARY]
    if not requests:
        requests = [s for s in spans if s.name is SpanName.OPENAI_HTTP_REQUEST]
    seconds = window_ns / NS_PER_S
    depths = _values(spans, Attribute.QUEUE_DEPTH)
    return Figures(
        window_ns=window_ns,
        requests_per_minute=len(requests) * 60 / seconds,
        prompt_tokens_per_s=sum(_values(requests, Attribute.PROMPT_TOKENS)) / seconds,
        completion_tokens_per_s=sum(_values(requests, Attribute.COMPLETION_TOKENS))
        / seconds,
        failed_requests=sum(
            status >= FIRST_FAILED_STATUS
            for status in _values(requests, Attribute.HTTP_STATUS)
        ),
        ttft=quantiles(_values(requests, Attribute.TTFT_MS)),
        tpot=quantiles(_values(requests, Attribute.TPOT_MS)),
        queue_wait=quantiles(_values(spans, Attribute.QUEUE_WAIT_MS)),
        lock_wait=quantiles(_values(spans, Attribute.LOCK_WAIT_MS)),
        queue_depth=int(depths[-1]) if depths else 0,
    )


def quantiles(milliseconds: Iterable[float]) -> Quantiles:
    """Nearest-rank quantiles: each one is a time that was measured."""
    ordered = sorted(milliseconds)
    if not ordered:
        return Quantiles()
    return Quantiles(
        count=len(ordered),
        p50_us=_microseconds(ordered[_rank(len(ordered), 50)]),
        p95_us=_microseconds(ordered[_rank(len(ordered), 95)]),
        max_us=_microseconds(ordered[-1]),
    )


def _rank(count: int, percent: int) -> int:
    return max(0, -(-count * percent // 100) - 1)


def _microseconds(milliseconds: float) -> int:
    return round(milliseconds * US_PER_MS)


def _values(spans: Iterable[Span], attribute: Attribute) -> list[float]:
    found = (each.number(attribute) for each in spans)
    return [value for value in found if value is not None]
