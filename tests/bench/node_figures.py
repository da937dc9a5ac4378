"""Measure a daemon against its bars: claims, `skippyctl status`, an idle node.

Run with `PYTHONPATH=tests python tests/bench/node_figures.py`; 1 when a bar is missed.
A table goes to standard output. The figure over all is held against the bar. Beside it
stands the best of a few windows: neighbours on the same core and disk can only slow a
window down, so that one says what the code itself costs. The coordination on a virtual
clock has a bar of its own in `tests/simulation/async_bench.py`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from support.daemons import Daemon, until
from support.process_holdings import cpu_share, resident_bytes
from support.raw_coordinator import RawCoordinator
from support.stage_nodes import Plan, small_plan


if TYPE_CHECKING:
    from collections.abc import Callable

CLAIMS = 1_000
CLAIMS_BEFORE = 20
CLAIM_BAR_MS = 20.0
STATUS_RUNS = 20
WINDOWS = 4
STATUS_BAR_MS = 300.0
IDLE_SECONDS = 20.0
SETTLE_SECONDS = 5.0
IDLE_BAR_PERCENT = 0.5
MEMORY_BAR_MB = 120.0
MS_PER_S = 1000.0
MB = 1_000_000


@attrs.frozen
class Figure:
    """One measured number and the most that it may be."""

    name: str
    value: float
    bar: float
    unit: str
    note: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the bar is met."""
        return self.value < self.bar

    def __str__(self) -> str:
        verdict = "" if self.is_met else "  MISSED"
        return f"{self.name:42} {self.value:8.2f} {self.unit} (bar {self.bar:g}){self.note}{verdict}"


def main() -> int:
    """Measure everything; 1 when a bar is missed."""
    with tempfile.TemporaryDirectory(prefix="skippy-bench-") as folder:
        figures = _measured(Path(folder))
    for figure in figures:
        sys.stdout.write(f"{figure}\n")
    return 0 if all(figure.is_met for figure in figures) else 1


def _measured(folder: Path) -> list[Figure]:
    plan = small_plan(folder / "models")
    atlas, borea = (
        Daemon(name, folder / name, folder / "models") for name in ("atlas", "borea")
    )
    try:
        for daemon in (atlas, borea):
            daemon.start()
        for daemon in (atlas, borea):
            daemon.until_ready()
        atlas.join(borea)
        until(lambda: borea.sees().get("atlas") == "ok", "they met", within_s=30)
        return [*_idle(borea), _status(borea), _claims(atlas, borea, plan)]
    finally:
        for daemon in (atlas, borea):
            daemon.close()


def _idle(node: Daemon) -> list[Figure]:
    assert node.process is not None
    pid = node.process.pid
    time.sleep(SETTLE_SECONDS)
    share = cpu_share(pid, IDLE_SECONDS)
    return [
        Figure("idle daemon with one peer, CPU", share * 100, IDLE_BAR_PERCENT, "%"),
        Figure("idle daemon, memory", resident_bytes(pid) / MB, MEMORY_BAR_MB, "MB"),
    ]


def _status(node: Daemon) -> Figure:
    command = [
        sys.executable,
        "-m",
        "skippyctl",
        "status",
        "--socket",
        str(node.socket),
    ]

    def ask() -> None:
        subprocess.run(command, capture_output=True, check=True)

    ask()
    times_ms = [_timed_ms(ask) for _ in range(STATUS_RUNS)]
    name = f"skippyctl status, process, median of {STATUS_RUNS}"
    return _of_windows(name, times_ms, statistics.median, STATUS_BAR_MS)


def _claims(sender: Daemon, node: Daemon, plan: Plan) -> Figure:
    sender_id = str(sender.ask("status")["daemon"]["node_id"])
    own_id = str(node.ask("status")["daemon"]["node_id"])
    known = attrs.evolve(plan, node_ids=(sender_id, own_id))
    coordinator = RawCoordinator.open(
        node.control_port, sender.folder / "state", sender_id, known
    )
    times_ms = []
    with coordinator.control:
        for term in range(1, CLAIMS_BEFORE + CLAIMS + 1):
            start_s = time.perf_counter()
            answer = coordinator.claim(term)
            times_ms.append((time.perf_counter() - start_s) * MS_PER_S)
            assert "result" in answer, answer
    name = f"claim answer with its commit, p99 of {CLAIMS}"
    return _of_windows(name, times_ms[CLAIMS_BEFORE:], _p99, CLAIM_BAR_MS)


def _of_windows(
    name: str,
    times_ms: list[float],
    summary: Callable[[list[float]], float],
    bar_ms: float,
) -> Figure:
    size = len(times_ms) // WINDOWS
    windows = [times_ms[at : at + size] for at in range(0, len(times_ms), size)]
    best = min(summary(window) for window in windows)
    median_ms = statistics.median(times_ms)
    note = f"; median {median_ms:.1f}, best of {WINDOWS} windows {best:.1f}"
    return Figure(name, summary(times_ms), bar_ms, "ms", note)


def _p99(times_ms: list[float]) -> float:
    return statistics.quantiles(times_ms, n=100)[-1]


def _timed_ms(action: Callable[[], None]) -> float:
    start_s = time.perf_counter()
    action()
    return (time.perf_counter() - start_s) * MS_PER_S


if __name__ == "__main__":
    sys.exit(main())
