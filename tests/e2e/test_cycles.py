"""Deploy, answer, withdraw, again and again: nothing is left behind.

`SKIPPY_SOAK=1` runs a hundred cycles, otherwise a tenth of them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.daemon_groups import joined
from support.daemons import Census, Daemon, until


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.native, pytest.mark.slow]

CYCLES = 100 if os.environ.get("SKIPPY_SOAK") else 10
SETTLED = CYCLES // 10 + 2
"""From this cycle on nothing may grow: caches are filled, modules are loaded."""

MEMORY_SHARE = 0.05
IDLE_SECONDS = 20.0


@pytest.fixture
def nodes(tmp_path: Path, smollm2_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    daemons = [
        Daemon(name, tmp_path / name, smollm2_path.parent)
        for name in ("atlas", "borea")
    ]
    with joined(daemons):
        first, second = daemons
        yield first, second


def _cycle(first: Daemon, second: Daemon, model: str) -> None:
    deployed = first.ctl("deploy", model, "--nodes", "atlas,borea", "--lanes", "1")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    assert second.answer(model, "Hello", 2)
    withdrawn = first.ctl("withdraw", model)
    assert withdrawn.returncode == 0, withdrawn.stdout + withdrawn.stderr
    until(
        lambda: first.census().children == second.census().children == 0,
        "every stage is reaped",
        within_s=IDLE_SECONDS,
    )


def _is_back_at(daemon: Daemon, before: Census) -> bool:
    now = daemon.census()
    return (
        now.descriptors <= before.descriptors
        and now.sockets <= before.sockets
        and now.threads <= before.threads
        and now.children == 0
        and now.resident_bytes <= before.resident_bytes * (1 + MEMORY_SHARE)
    )


def _until_back_at(daemon: Daemon, before: Census) -> None:
    try:
        until(lambda: _is_back_at(daemon, before), "as before", within_s=IDLE_SECONDS)
    except AssertionError:
        pytest.fail(f"{daemon.name} held {before} and holds {daemon.census()}")


@pytest.mark.watchdog(60 * CYCLES)
def test_cycles_leave_nothing_behind(
    nodes: tuple[Daemon, Daemon], smollm2_path: Path
) -> None:
    model = smollm2_path.stem
    for _ in range(SETTLED):
        _cycle(*nodes, model)
    before = [daemon.census() for daemon in nodes]
    for _ in range(CYCLES - SETTLED):
        _cycle(*nodes, model)
    for daemon, then in zip(nodes, before, strict=True):
        _until_back_at(daemon, then)
        assert daemon.stop() == 0, daemon.log
