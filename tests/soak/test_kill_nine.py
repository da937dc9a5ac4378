"""`kill -9` of a real daemon between a claim's arrival and its answer, with restarts.

The daemon dies at its named fail points while the test plays the coordinator over a
real control connection. `SKIPPY_SOAK=1` kills 200 times, otherwise a tenth of that.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.daemon.fail_points import NAMES, STATUS_OF_KILL, VARIABLE
from skippyd.runtime.build import build_facts
from support.daemons import Daemon, until
from support.process_holdings import child_pids
from support.raw_coordinator import RawCoordinator
from support.stage_nodes import Plan, small_plan, stored_term


if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.native, pytest.mark.slow]

KILLS = 200 if os.environ.get("SKIPPY_SOAK") == "1" else 20
MOST_CLAIMS = 8
SECONDS_A_KILL = 30


@attrs.define(eq=False)
class Victim:
    """A daemon that is killed, and what it has said so far."""

    daemon: Daemon
    coordinator_state: Path
    coordinator_id: str
    plan: Plan
    answered_term: int = 0
    next_term: int = 1
    stage_pids: set[int] = attrs.Factory(set)

    def live(self, fail_point: str) -> None:
        """Start it, claim and load until it dies, and look at what is left."""
        self.daemon.environment[VARIABLE] = fail_point
        self.daemon.start()
        until(self._is_listening, "it listens", within_s=SECONDS_A_KILL)
        assert stored_term(self.daemon.folder / "state") >= self.answered_term
        with contextlib.suppress(OSError, ssl.SSLError):
            self._coordinate()
        assert self.daemon.wait() == STATUS_OF_KILL, self.daemon.log
        assert stored_term(self.daemon.folder / "state") >= self.answered_term
        until(self._are_stages_gone, "its stages end with it", within_s=SECONDS_A_KILL)

    def _coordinate(self) -> None:
        coordinator = RawCoordinator.open(
            self.daemon.control_port,
            self.coordinator_state,
            self.coordinator_id,
            self.plan,
        )
        with coordinator.control:
            unclaimed = coordinator.load(self.next_term, 1)
            assert "load_failed" in str(unclaimed).lower(), unclaimed
            for _ in range(MOST_CLAIMS):
                term, self.next_term = self.next_term, self.next_term + 1
                answer = coordinator.claim(term)
                verdict = str(answer.get("result"))
                assert "accepted" in verdict or "superseded" in verdict, answer
                self.answered_term = term
                loaded = coordinator.load(term, 1)
                assert "ready" in str(loaded.get("result")).lower(), loaded
                self.stage_pids |= self._children()
        raise AssertionError("it did not die")

    def _children(self) -> set[int]:
        assert self.daemon.process is not None
        return child_pids(self.daemon.process.pid)

    def _are_stages_gone(self) -> bool:
        return not any(Path(f"/proc/{pid}/exe").exists() for pid in self.stage_pids)

    def _is_listening(self) -> bool:
        assert self.daemon.process is not None
        assert self.daemon.process.poll() is None, self.daemon.log
        try:
            RawCoordinator.open(
                self.daemon.control_port,
                self.coordinator_state,
                self.coordinator_id,
                self.plan,
            ).control.close()
        except (OSError, ssl.SSLError):
            return False
        return True


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    """A daemon that trusts a node whose key the test has."""
    plan = small_plan(tmp_path / "models")
    atlas, borea = (
        Daemon(name, tmp_path / name, tmp_path / "models")
        for name in ("atlas", "borea")
    )
    try:
        for daemon in (atlas, borea):
            daemon.start()
        for daemon in (atlas, borea):
            daemon.until_ready()
        atlas.join(borea)
        ids = [daemon.ask("status")["daemon"]["node_id"] for daemon in (atlas, borea)]
        assert (atlas.stop(), borea.stop()) == (0, 0)
        known = attrs.evolve(plan, build=build_facts(), node_ids=tuple(ids))
        yield Victim(borea, atlas.folder / "state", ids[0], known)
    finally:
        for daemon in (atlas, borea):
            daemon.close()


@pytest.mark.watchdog(120 + SECONDS_A_KILL * KILLS)
def test_what_a_killed_daemon_answered_it_keeps_to(victim: Victim) -> None:
    """The accepted term never falls, and nothing is loaded without a living claim."""
    for kill in range(KILLS):
        name = NAMES[kill % len(NAMES)]
        victim.live(f"{name}:{2 + kill // len(NAMES) % 3}")
    del victim.daemon.environment[VARIABLE]
    victim.daemon.start()
    victim.daemon.until_ready()
    assert victim.daemon.ctl("fence", "show").returncode == 0, "no kill is amnesia"
    assert victim.answered_term > 0
    assert victim.daemon.stop() == 0
