"""The real coordination on a virtual clock: seeds, their histories, and broken copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio._core._run as trio_run

from simulation.async_sweep import async_sweep, quiet
from simulation.async_world import DETERMINISTIC, run_async_seed
from skippyd.coordination.rollout_runs import RunBook
from skippyd.coordination.route_announcing import RouteAnnouncer


if TYPE_CHECKING:
    from skippyd.coordination.planning import PlannedRun


pytestmark = pytest.mark.slow  # hours of virtual time


def test_seeds_end_served_and_break_nothing() -> None:
    result = async_sweep(0, 60)
    assert result.broken == []
    assert result.faults > 100


def test_a_seed_is_a_whole_history() -> None:
    assert hasattr(trio_run, DETERMINISTIC)
    with quiet():
        first, again = run_async_seed(7), run_async_seed(7)
        other = run_async_seed(8)
    assert first == again
    assert first.digest != other.digest


def violations(count: int = 12) -> str:
    """What a broken copy is caught with, over a few seeds."""
    return "; ".join(str(o.violation) for o in async_sweep(0, count).broken)


def test_one_key_for_all_runs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    make_plan = RunBook.plan_made

    def with_one_key(self: RunBook, planned: PlannedRun) -> None:
        self.draw_key = lambda: "00" * 32
        make_plan(self, planned)

    monkeypatch.setattr(RunBook, "plan_made", with_one_key)
    assert "has the key of another run" in violations()


def test_a_node_that_is_never_told_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RouteAnnouncer, "node_returned", lambda _self, _node: None)
    assert "nothing is served" in violations()


def test_ports_that_are_not_handed_on_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RunBook, "stage_ready", lambda _self, _status: None)
    assert "loads a stage before those after it" in violations()
