"""Print how many schedules of the real coordination a minute one core gets through.

Run with `PYTHONPATH=tests python tests/simulation/async_bench.py [COUNT]`; the bar is
a thousand. Processor time is counted, so that a busy machine does not matter much.
"""

from __future__ import annotations

import sys

from simulation.async_sweep import async_sweep


BAR_SCHEDULES_A_MINUTE = 1_000

FIRST_SEED = 1_000_000


def main(arguments: list[str]) -> int:
    """Measure; 1 when the bar is missed or an invariant broke."""
    result = async_sweep(FIRST_SEED, int(arguments[0]) if arguments else 500)
    rate = result.schedules_a_minute()
    for outcome in result.broken:
        sys.stdout.write(f"{outcome}\n")
    sys.stdout.write(
        f"{result.table()}\n"
        f"schedules a minute on one core: {rate:,.0f} "
        f"(bar {BAR_SCHEDULES_A_MINUTE:,})\n"
    )
    return 0 if rate >= BAR_SCHEDULES_A_MINUTE and not result.broken else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
