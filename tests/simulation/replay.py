"""Run one seed again: `python -m simulation.replay SEED [--liveness] [--shrink]`."""

from __future__ import annotations

import argparse
import sys

from simulation.runner import run_seed
from simulation.schedule import FaultClass
from simulation.shrink import Shrunk, report, shrink


def main(arguments: list[str]) -> int:
    """Replay a seed and print what it came to; 1 when an invariant breaks."""
    options = _parser().parse_args(arguments)
    faults = frozenset(int(n) for n in options.drop.split(",") if n)
    classes = frozenset(FaultClass(n) for n in options.without.split(",") if n)
    outcome = run_seed(
        options.seed,
        is_liveness=options.liveness,
        dropped_faults=faults,
        dropped_classes=classes,
    )
    if outcome.violation is None:
        served = "served" if outcome.is_served else "not served"
        sys.stdout.write(
            f"seed {options.seed}: {outcome.event_count} events, nothing broken, "
            f"in the end {served}\n"
        )
        return 0
    found = Shrunk(outcome=outcome, dropped_faults=faults, dropped_classes=classes)
    if options.shrink:
        found = shrink(outcome)
    sys.stdout.write(report(found) + "\n")
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulation.replay")
    parser.add_argument("seed", type=int)
    parser.add_argument("--liveness", action="store_true")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--drop", default="", help="numbers of fault events")
    parser.add_argument("--without", default="", help="classes of faults")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
