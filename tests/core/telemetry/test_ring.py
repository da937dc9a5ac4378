from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.telemetry.names import SpanName
from skippyd.core.telemetry.ring import RingPage, TelemetryRing
from skippyd.core.telemetry.span import span


def filled(count: int, capacity: int) -> TelemetryRing:
    ring = TelemetryRing(capacity)
    for number in range(1, count + 1):
        ring.record(span(SpanName.RECV, number * 10, number * 10 + 5))
    return ring


def sequences(page: RingPage) -> list[int]:
    return [item.sequence for item in page.items]


def test_a_full_ring_drops_the_oldest_and_counts_it() -> None:
    ring = filled(5, capacity=3)
    statistics = ring.statistics()
    assert (statistics.kept, statistics.recorded, statistics.dropped) == (3, 5, 2)
    assert sequences(ring.after(0, 10)) == [3, 4, 5]
    assert ring.after(0, 10).missed == 2


def test_what_others_gave_up_is_counted_too() -> None:
    ring = filled(1, capacity=3)
    ring.count_lost(4)
    ring.count_lost(1)
    assert (ring.statistics().lost, ring.statistics().dropped) == (5, 0)


def test_a_reader_goes_on_after_the_last_it_has_seen() -> None:
    ring = filled(5, capacity=10)
    assert sequences(ring.after(3, 10)) == [4, 5]
    assert ring.after(5, 10) == RingPage(items=(), missed=0)


def test_a_limit_keeps_the_newest() -> None:
    page = filled(5, capacity=10).after(0, 2)
    assert (sequences(page), page.missed) == ([4, 5], 3)
    assert filled(5, capacity=10).after(0, 0).items == ()


def test_an_empty_ring_has_nothing() -> None:
    assert filled(0, capacity=1).after(0, 10) == RingPage(items=(), missed=0)


def test_a_window_is_measured_by_the_end_of_a_span() -> None:
    ring = filled(3, capacity=3)
    assert [each.start_unix_ns for each in ring.since(25)] == [20, 30]
    assert ring.since(36) == ()


@given(
    count=st.integers(0, 40),
    capacity=st.integers(1, 12),
    after=st.integers(0, 45),
    limit=st.integers(0, 15),
)
def test_nothing_is_lost_in_silence(
    count: int, capacity: int, after: int, limit: int
) -> None:
    ring = filled(count, capacity)
    page = ring.after(after, limit)
    statistics = ring.statistics()
    assert statistics.kept + statistics.dropped == statistics.recorded == count
    assert len(page.items) <= min(limit, capacity)
    assert len(page.items) + page.missed == max(0, count - after)
    assert sequences(page) == list(range(count - len(page.items) + 1, count + 1))
