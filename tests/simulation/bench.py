"""Print how many checked events a minute one core gets through.

Run with `PYTHONPATH=tests python tests/simulation/bench.py [SECONDS]`; the bar is
three million. Processor time is counted, so that a busy machine does not matter much.
"""

from __future__ import annotations

import sys

from simulation.sweep import sweep


BAR_EVENTS_A_MINUTE = 3_000_000

FIRST_SEED = 1_000_000


def main(arguments: list[str]) -> int:
    """Measure; 1 when the bar is missed or an invariant broke."""
    seconds = float(arguments[0]) if arguments else 20.0
    result = sweep(seconds, first_seed=FIRST_SEED)
    rate = result.events_a_minute()
    sys.stdout.write(
        f"{result.table()}\n"
        f"checked events a minute on one core: {rate:,.0f} "
        f"(bar {BAR_EVENTS_A_MINUTE:,})\n"
    )
    return 0 if rate >= BAR_EVENTS_A_MINUTE and not result.broken else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
