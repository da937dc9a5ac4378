"""Print how many checked events a minute one core gets through.

Run with `PYTHONPATH=tests python tests/simulation/bench.py [SECONDS]`; the bar is
three million. The time is cut into windows: neighbours on the same core can only slow
a window down, so the best one says what the code costs, the median what was left.
"""

from __future__ import annotations

import statistics
import sys

from simulation.sweep import sweep


BAR_EVENTS_A_MINUTE = 3_000_000

FIRST_SEED = 1_000_000

WINDOW_S = 2.0


def main(arguments: list[str]) -> int:
    """Measure; 1 when the bar is missed or an invariant broke."""
    seconds = float(arguments[0]) if arguments else 20.0
    windows = [
        sweep(WINDOW_S, first_seed=FIRST_SEED + 100_000 * number)
        for number in range(max(1, round(seconds / WINDOW_S)))
    ]
    rates = [window.events_a_minute() for window in windows]
    best = windows[rates.index(max(rates))]
    violations = sum(len(window.broken) for window in windows)
    sys.stdout.write(
        f"best of {len(windows)} windows: {best.table()}\n"
        f"checked events a minute on one core: best {max(rates):,.0f}, "
        f"median {statistics.median(rates):,.0f} (bar {BAR_EVENTS_A_MINUTE:,}), "
        f"{violations} violations in all\n"
    )
    return 0 if max(rates) >= BAR_EVENTS_A_MINUTE and not violations else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
