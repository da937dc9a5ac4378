"""The mutant table: whichever rule is switched off, something notices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from simulation.equivalents import EQUIVALENTS
from simulation.mutants import MUTANTS, table, try_mutant
from skippyd.core.coordinator.fence import ClaimFence


if TYPE_CHECKING:
    from simulation.patching import Mutant


@pytest.mark.slow
def test_every_rule_is_missed_when_it_is_off(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [try_mutant(mutant) for mutant in MUTANTS]
    with capsys.disabled():
        print("\n" + table(rows))  # noqa: T201
    survivors = [row.mutant.name for row in rows if not row.is_killed]
    assert survivors == []


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [mutant for mutant, _ in EQUIVALENTS])
def test_equivalent_changes_are_noticed_by_nothing(mutant: Mutant) -> None:
    assert not try_mutant(mutant).is_killed


def test_a_mutant_is_undone() -> None:
    before = ClaimFence.__dict__["_reject_reason"]
    mutant = next(m for m in MUTANTS if m.name == "claim: StaleTerm")
    with mutant.applied():
        assert ClaimFence.__dict__["_reject_reason"] is not before
    assert ClaimFence.__dict__["_reject_reason"] is before


def test_no_two_mutants_share_a_name() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
