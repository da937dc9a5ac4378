"""Run seed after seed of the real coordination and count what came of them."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from simulation.async_world import AsyncOutcome, run_async_seed


if TYPE_CHECKING:
    from collections.abc import Iterator


@attrs.define(kw_only=True)
class AsyncSweep:
    """Counts of a sweep."""

    count: int = 0
    events: int = 0
    faults: int = 0
    slowest_s: float = 0.0
    cpu_s: float = 0.0
    broken: list[AsyncOutcome] = attrs.field(factory=list)

    def schedules_a_minute(self) -> float:
        """Schedules in a minute of processor time of one core."""
        return self.count / self.cpu_s * 60

    def table(self) -> str:
        """Say what was run."""
        return (
            f"{self.count} schedules, {self.events} checked events, {self.faults} "
            f"faults, {len(self.broken)} violations; served at most "
            f"{self.slowest_s:.0f} s after healing"
        )


def async_sweep(first_seed: int, count: int) -> AsyncSweep:
    """Run so many seeds from `first_seed` on."""
    result = AsyncSweep()
    start_s = time.process_time()
    with quiet():
        for seed in range(first_seed, first_seed + count):
            outcome = run_async_seed(seed)
            result.count += 1
            result.events += outcome.events
            result.faults += len(outcome.faults)
            result.slowest_s = max(result.slowest_s, outcome.served_after_s)
            if outcome.violation is not None:
                result.broken.append(outcome)
    result.cpu_s = time.process_time() - start_s
    return result


@contextmanager
def quiet() -> Iterator[None]:
    """Faults make the product log; thousands of them say nothing here."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
