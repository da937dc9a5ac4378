"""Run seed after seed for some time and count what was checked."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import attrs

from simulation.runner import run_seed


if TYPE_CHECKING:
    from simulation.runner import Outcome


MAX_KEPT = 5
"""Failing outcomes that a sweep keeps; after that it ends."""


@attrs.define(kw_only=True)
class Sweep:
    """Counts of a sweep over seeds."""

    event_counts: list[int] = attrs.field(factory=list)
    fault_counts: list[int] = attrs.field(factory=list)
    control_counts: list[int] = attrs.field(factory=list)
    frame_count: int = 0
    served_count: int = 0
    broken: list[Outcome] = attrs.field(factory=list)
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def event_count(self) -> int:
        """Events that were checked, all schedules together."""
        return sum(self.event_counts)

    def median_control_events(self) -> float:
        """Events of the schedule in the middle, frames of served runs left out."""
        return statistics.median(self.control_counts)

    def events_a_minute(self) -> float:
        """Checked events in a minute of processor time of one core."""
        return self.event_count / self.cpu_s * 60

    def table(self) -> str:
        """Say what was run, with the distribution of the schedules' sizes."""
        count = len(self.event_counts)
        events = _spread(self.event_counts)
        faults = _spread(self.fault_counts)
        return (
            f"{count} schedules, {self.event_count} checked events in "
            f"{self.wall_s:.1f} s ({self.cpu_s:.1f} s of processor time), "
            f"{len(self.broken)} violations\n"
            f"of these events {self.frame_count} are frames of served runs\n"
            f"events a schedule: {events}\n"
            f"without frames: {_spread(self.control_counts)}\n"
            f"fault events a schedule: {faults}\n"
            f"served at the end: {self.served_count / count:.0%}"
        )


def sweep(seconds: float, *, first_seed: int = 0, is_liveness: bool = False) -> Sweep:
    """Run seeds from `first_seed` on until the time is over."""
    result = Sweep()
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    seed = first_seed
    while time.perf_counter() - start_s < seconds and len(result.broken) < MAX_KEPT:
        outcome = run_seed(seed, is_liveness=is_liveness)
        result.event_counts.append(outcome.event_count)
        result.fault_counts.append(len(outcome.schedule.faults))
        result.control_counts.append(outcome.event_count - outcome.frame_count)
        result.frame_count += outcome.frame_count
        result.served_count += outcome.is_served
        if outcome.violation is not None:
            result.broken.append(outcome)
        seed += 1
    result.wall_s = time.perf_counter() - start_s
    result.cpu_s = time.process_time() - start_cpu_s
    return result


def _spread(values: list[int]) -> str:
    tenths = statistics.quantiles(values, n=10) if len(values) > 1 else values * 9
    return (
        f"least {min(values)}, tenth {tenths[0]:.0f}, median {tenths[4]:.0f}, "
        f"ninth tenth {tenths[8]:.0f}, most {max(values)}"
    )
