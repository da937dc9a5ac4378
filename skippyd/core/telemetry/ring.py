"""A bounded ring of spans: the newest stay, the oldest go, and what went is counted.

Theory of operation. `record` is a few steps that never wait, so the hot path may call
it; a deque's append is atomic in Python. Each span has a number, counted from 1, so a
reader asks for what came after the last it has seen and learns how much it missed.
Several recorders need a ring each, or one thread that records for all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from skippyd.core.telemetry.span import Span


CAPACITY = 8192
"""Of skippy-facts 5.11: the retry buffer's bound."""


@attrs.frozen
class Numbered:
    """A span and its place in everything that was recorded."""

    sequence: int
    span: Span


@attrs.frozen(kw_only=True)
class RingStatistics:
    """What a ring has seen.

    Args:
        dropped: Recorded but kept no longer; none of them was lost in silence.
        lost: Given up before they came here, by those who could not hand them over.
    """

    capacity: int
    kept: int
    recorded: int
    dropped: int
    lost: int = 0


@attrs.frozen(kw_only=True)
class RingPage:
    """The newest spans after a number, the oldest of them first.

    Args:
        missed: Spans after that number that are not in the page: dropped, or over the
            limit.
    """

    items: tuple[Numbered, ...]
    missed: int


class TelemetryRing:
    """The newest `capacity` spans; see the module docstring."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        assert capacity > 0, capacity
        self._capacity = capacity
        self._kept: deque[Numbered] = deque(maxlen=capacity)
        self._recorded = 0
        self._lost = 0

    def record(self, span: Span) -> None:
        """Keep a span; the oldest one goes when the ring is full."""
        self._recorded += 1
        self._kept.append(Numbered(self._recorded, span))

    def count_lost(self, count: int) -> None:
        """Count spans that others had to give up before they came here."""
        self._lost += count

    def after(self, sequence: int, limit: int) -> RingPage:
        """The newest spans with a greater number, at most `limit` of them."""
        newest = tuple(self._kept)[-limit:] if limit > 0 else ()
        items = tuple(each for each in newest if each.sequence > sequence)
        all_of_them = max(0, self._recorded - max(0, sequence))
        return RingPage(items=items, missed=all_of_them - len(items))

    def since(self, unix_ns: int) -> tuple[Span, ...]:
        """Spans that ended at that moment or later, in the order of recording."""
        return tuple(
            each.span for each in tuple(self._kept) if each.span.end_unix_ns >= unix_ns
        )

    def statistics(self) -> RingStatistics:
        """How much was recorded and how much of it is gone."""
        kept = len(self._kept)
        return RingStatistics(
            capacity=self._capacity,
            kept=kept,
            recorded=self._recorded,
            dropped=self._recorded - kept,
            lost=self._lost,
        )
