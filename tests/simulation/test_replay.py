"""A seed is a whole history: it can be seen again, and made smaller."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from simulation import replay
from simulation.mutants import MUTANTS
from simulation.runner import run_seed
from simulation.schedule import FaultClass
from simulation.shrink import report, shrink


if TYPE_CHECKING:
    from simulation.patching import Mutant


TESTS = Path(__file__).resolve().parents[1]


def mutant(name: str) -> Mutant:
    """Return a mutant by its name."""
    return next(m for m in MUTANTS if m.name == name)


def test_a_seed_is_the_same_history_each_time() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first.event_count == second.event_count
    assert first.schedule == second.schedule
    assert run_seed(8).event_count != first.event_count


@pytest.mark.slow
@pytest.mark.process
def test_a_seed_is_the_same_history_in_every_process() -> None:
    told = set()
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": str(TESTS),
        }
        done = subprocess.run(
            [sys.executable, "-m", "simulation.replay", "3"],
            env=environment,
            cwd=TESTS.parent,
            capture_output=True,
            text=True,
            check=False,
        )
        told.add((done.returncode, done.stdout))
    assert len(told) == 1


@pytest.mark.slow
def test_a_violation_shrinks_and_says_how_to_see_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with mutant("an accept waits for older work").applied():
        outcome = next(
            outcome for seed in range(500) if (outcome := run_seed(seed)).violation
        )
        shrunk = shrink(outcome)
        text = report(shrunk)
        command = text.rsplit("simulation.replay ", 1)[1]
        assert replay.main(shlex.split(command)) == 1
    assert outcome.violation is not None
    assert shrunk.outcome.violation is not None
    assert shrunk.outcome.violation.name == outcome.violation.name
    assert len(shrunk.outcome.schedule.faults) <= len(outcome.schedule.faults)
    assert len(shrunk.outcome.violation.trace) <= 50
    assert text.strip() == capsys.readouterr().out.strip()


def test_replay_says_that_nothing_broke(capsys: pytest.CaptureFixture[str]) -> None:
    dropped = FaultClass.LOSS.value
    assert replay.main(["7", "--drop", "0", "--without", dropped]) == 0
    assert "nothing broken" in capsys.readouterr().out
