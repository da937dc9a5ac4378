"""Make a failing seed small: leave out every fault that it fails without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from simulation.runner import run_seed


if TYPE_CHECKING:
    from simulation.runner import Outcome
    from simulation.schedule import FaultClass


@attrs.frozen(kw_only=True)
class Shrunk:
    """The smallest failing run that was found, and what was left out for it."""

    outcome: Outcome
    dropped_faults: frozenset[int]
    dropped_classes: frozenset[FaultClass]


def shrink(outcome: Outcome) -> Shrunk:
    """Drop classes, then fault events, as long as the same invariant stays broken."""
    assert outcome.violation is not None
    name = outcome.violation.name
    best = Shrunk(
        outcome=outcome, dropped_faults=frozenset(), dropped_classes=frozenset()
    )
    for fault_class in sorted(outcome.schedule.classes, key=lambda c: c.value):
        classes = best.dropped_classes | {fault_class}
        best = _tried(best, name, best.dropped_faults, classes)
    for index in range(len(outcome.schedule.faults)):
        faults = best.dropped_faults | {index}
        best = _tried(best, name, faults, best.dropped_classes)
    return best


def _tried(
    best: Shrunk,
    name: str,
    faults: frozenset[int],
    classes: frozenset[FaultClass],
) -> Shrunk:
    outcome = run_seed(
        best.outcome.schedule.seed,
        is_liveness=best.outcome.schedule.is_liveness,
        dropped_faults=faults,
        dropped_classes=classes,
    )
    if outcome.violation is None or outcome.violation.name != name:
        return best
    return Shrunk(outcome=outcome, dropped_faults=faults, dropped_classes=classes)


def report(shrunk: Shrunk) -> str:
    """Spell a violation out: what broke, the events before it, how to see it again."""
    outcome = shrunk.outcome
    assert outcome.violation is not None
    schedule = outcome.schedule
    lines = [
        f"seed {schedule.seed} breaks {outcome.violation.text}",
        f"after {outcome.event_count} events; the last of them:",
        *outcome.violation.trace,
        "faults that are left:",
        *(f"    {fault}" for fault in schedule.faults),
        f"    classes: {' '.join(sorted(c.value for c in schedule.classes))}",
        "see it again with",
        f"    PYTHONPATH=tests python -m simulation.replay {_arguments(shrunk)}",
    ]
    return "\n".join(lines)


def _arguments(shrunk: Shrunk) -> str:
    schedule = shrunk.outcome.schedule
    words = [str(schedule.seed)]
    if schedule.is_liveness:
        words.append("--liveness")
    if shrunk.dropped_faults:
        numbers = ",".join(map(str, sorted(shrunk.dropped_faults)))
        words.append(f"--drop {numbers}")
    if shrunk.dropped_classes:
        names = ",".join(sorted(c.value for c in shrunk.dropped_classes))
        words.append(f"--without {names}")
    return " ".join(words)
