from __future__ import annotations

from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.retrying import (
    BACK_OFF_FIRST_MS,
    DEBOUNCE_MS,
    RETRY_TICK_MS,
    Retry,
)
from skippyd.ids import UnixMs


NOW = Instant(UnixMs(0), 100)


def test_nothing_waits_until_it_is_told_to() -> None:
    retry = Retry()
    retry.hasten(NOW)
    assert not retry.is_due(NOW)
    retry.tick(NOW)
    assert retry.due_ms == 100 + RETRY_TICK_MS
    assert retry.is_due(NOW.later(RETRY_TICK_MS))
    retry.end()
    assert not retry.is_due(NOW.later(RETRY_TICK_MS))


def test_news_hastens_a_tick_and_never_delays_it() -> None:
    retry = Retry()
    retry.tick(NOW)
    retry.hasten(NOW)
    assert retry.due_ms == 100 + DEBOUNCE_MS
    retry.hasten(NOW.later(DEBOUNCE_MS - 1))
    assert retry.due_ms == 100 + DEBOUNCE_MS


def test_news_does_not_cut_a_back_off_short_but_the_tick_after_it() -> None:
    retry = Retry()
    retry.back_off(NOW, jitter=0.0)
    retry.hasten(NOW)
    assert retry.due_ms == 100 + BACK_OFF_FIRST_MS // 2
    assert retry.failure_count == 1
    retry.tick(NOW)
    retry.hasten(NOW)
    assert retry.due_ms == 100 + DEBOUNCE_MS
