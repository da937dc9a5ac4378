"""The simulator itself: minutes of schedules in which nothing may break."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from simulation.runner import run_seed
from simulation.schedule import FaultClass, draw_schedule
from simulation.shrink import report, shrink
from simulation.sweep import Sweep, sweep


if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """Lines that are shown to whoever runs the tests, also when all is well."""
    lines: list[str] = []
    yield lines
    with capsys.disabled():
        print("\n" + "\n".join(lines))  # noqa: T201


def require_clean(result: Sweep) -> None:
    """Fail with everything needed to see a violation again."""
    if result.broken:
        pytest.fail(report(shrink(result.broken[0])))


def test_two_seconds_of_schedules_break_nothing() -> None:
    result = sweep(2.0, first_seed=500_000)
    require_clean(result)
    assert result.event_count > 0


@pytest.mark.slow
def test_a_minute_of_schedules_breaks_nothing(tell: list[str]) -> None:
    result = sweep(60.0)
    tell.append(result.table())
    require_clean(result)
    assert result.median_control_events() >= 150
    assert min(result.fault_counts) >= 1
    assert result.frame_count < result.event_count
    assert result.served_count > len(result.event_counts) // 20


@pytest.mark.slow
def test_after_healing_a_run_is_served(tell: list[str]) -> None:
    result = sweep(15.0, is_liveness=True)
    tell.append(f"liveness: {result.table()}")
    require_clean(result)
    assert result.served_count == len(result.event_counts)


def test_every_schedule_has_stages_coordinators_and_faults() -> None:
    seen: set[FaultClass] = set()
    for seed in range(200):
        schedule = draw_schedule(seed, random.Random(seed))
        assert schedule.stage_count >= 3
        assert schedule.node_count >= schedule.stage_count
        assert schedule.coordinator_count == 2
        assert schedule.horizon_ms == 120_000
        assert schedule.faults
        seen |= schedule.classes
    assert seen == set(FaultClass)


@pytest.mark.slow
def test_checking_what_was_touched_is_checking_all() -> None:
    for seed in range(60):
        touched, everything = run_seed(seed), run_seed(seed, checks_all=True)
        assert touched.event_count == everything.event_count
        assert touched.violation == everything.violation
