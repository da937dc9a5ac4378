from __future__ import annotations

import pytest

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.span import AttributeValue, span


@pytest.mark.parametrize(
    ("start", "end", "lasts"), [(10, 25, 15), (10, 10, 1), (10, 3, 1)]
)
def test_a_span_lasts_a_nanosecond_at_least(start: int, end: int, lasts: int) -> None:
    """skippy-facts 5.11: end >= start + 1."""
    assert span(SpanName.RECV, start, end).elapsed_ns == lasts


@pytest.mark.parametrize(
    ("value", "number"), [(3, 3.0), (2.5, 2.5), (True, None), ("3", None)]
)
def test_only_figures_are_numbers(value: AttributeValue, number: float | None) -> None:
    recorded = span(SpanName.RECV, 0, 1, {Attribute.TTFT_MS: value})
    assert recorded.number(Attribute.TTFT_MS) == number
    assert recorded.number(Attribute.TPOT_MS) is None
