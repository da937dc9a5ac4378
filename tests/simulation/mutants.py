"""The rules of fence, stage side and campaign, each switched off in turn.

A mutant patches one rule of the product while it is looked at. What must kill it: a
story (the first that fails is named), a seed of the simulator, or the exhaustive
search. `equivalents` holds those that nothing can tell from the product, and why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from simulation.campaign_mutants import CAMPAIGN_MUTANTS
from simulation.equivalents import EQUIVALENTS
from simulation.exhaustive import Scope, Search
from simulation.fence_mutants import FENCE_MUTANTS
from simulation.ghost import InvariantBrokenError
from simulation.runner import run_seed
from simulation.stage_mutants import STAGE_MUTANTS
from simulation.stories import STORIES


if TYPE_CHECKING:
    from simulation.patching import Mutant


SEEDS = range(20)
LIVENESS_SEEDS = range(3)

SCOPES = (
    Scope(stages=1, stopping=(0, 1), crashes=2),
    Scope(stages=1, stopping=(0, 1), crashes=2, terms=(7, 7)),
)
"""One stage is enough for what a stage alone must keep; `test_exhaustive` has three."""

MUTANTS: tuple[Mutant, ...] = (*FENCE_MUTANTS, *STAGE_MUTANTS, *CAMPAIGN_MUTANTS)


@attrs.frozen(kw_only=True)
class Kills:
    """What killed a mutant; empty words where it survived that kind."""

    mutant: Mutant
    story: str
    seed: str
    search: str

    @property
    def is_killed(self) -> bool:
        """Say whether anything noticed."""
        return bool(self.story or self.seed or self.search)


def try_mutant(mutant: Mutant) -> Kills:
    """Let everything loose on one mutant."""
    with mutant.applied():
        return Kills(
            mutant=mutant,
            story=_first_story(),
            seed=_first_seed(),
            search=_search(),
        )


def _first_story() -> str:
    for story in STORIES:
        try:
            story()
        # A mutant may break anything: whatever is raised is a kill.
        except Exception as broken:  # noqa: BLE001
            return f"{story.__name__} ({_name_of(broken)})"
    return ""


def _first_seed() -> str:
    for is_liveness, seeds in ((False, SEEDS), (True, LIVENESS_SEEDS)):
        for seed in seeds:
            try:
                outcome = run_seed(seed, is_liveness=is_liveness)
            except Exception as broken:  # noqa: BLE001
                return f"{seed} ({_name_of(broken)})"
            if outcome.violation is not None:
                mode = " liveness" if is_liveness else ""
                return f"{seed}{mode} ({outcome.violation.name})"
    return ""


def _search() -> str:
    try:
        for scope in SCOPES:
            Search(scope).run()
    except Exception as broken:  # noqa: BLE001
        return _name_of(broken)
    return ""


def _name_of(broken: Exception) -> str:
    if isinstance(broken, InvariantBrokenError):
        return broken.name
    return type(broken).__name__


def table(rows: list[Kills]) -> str:
    """Return the mutant table as aligned text."""
    header = ("rule switched off", "story", "first seed", "exhaustive")
    lines = [
        (row.mutant.name, row.story or "-", row.seed or "-", row.search or "-")
        for row in rows
    ]
    widths = [max(len(line[i]) for line in (header, *lines)) for i in range(4)]
    text = "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True))
        for line in (header, *lines)
    )
    reasons = "\n".join(f"{m.name}: {why}" for m, why in EQUIVALENTS)
    return f"{text}\n\nnothing can show these:\n{reasons}"
