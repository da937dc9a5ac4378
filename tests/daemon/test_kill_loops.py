"""`kill -9` between a claim's arrival and its answer, again and again.

A whole stage side dies at named fail points. What it answered is never forgotten, no
kill looks like amnesia, and no process of an old term outlives the claim that ended it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from skippyd.coordination.fence_store import FenceStore
from skippyd.daemon.fail_points import NAMES, STATUS_OF_KILL, VARIABLE


if TYPE_CHECKING:
    from pathlib import Path

SOAK = os.environ.get("SKIPPY_SOAK") == "1"
KILLS_PER_POINT = 67 if SOAK else 3

DAEMON = """
import json, os, sys
from pathlib import Path
import trio
from skippyd.core.coordinator.messages import ClaimAnswer, StageReady
from skippyd.core.coordinator.verdict import Accepted, Superseded
from skippyd.daemon.fail_points import FailPoints
from support.stage_nodes import Plan, stage_node

def say(**fields):
    os.write(1, json.dumps(fields).encode() + b"\\n")

async def main():
    folder, plan = Path(sys.argv[1]), Plan(path=Path(sys.argv[2]))
    reach = FailPoints.from_environment(os.environ).reach
    async with stage_node(folder, plan, is_known_identity=True, reach=reach) as node:
        claim = node.stages.fence.claim_of(plan.key)
        term = 10 if claim is None else claim.term
        say(started=term, quarantined=node.stages.quarantine_reason is not None)
        while True:
            term += 1
            answer = await node.claim(term)
            live = [s.load.coordinator_term for s in node.stages.live_stages()]
            say(accepted=term, live=live)
            assert isinstance(answer, ClaimAnswer)
            assert isinstance(answer.verdict, Accepted | Superseded)
            assert isinstance(await node.serve(term), StageReady)

trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.watchdog(1200 if SOAK else 120)
@pytest.mark.parametrize("name", NAMES)
def test_what_was_answered_is_never_forgotten(
    tmp_path: Path, small_model: Path, name: str
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    FenceStore.open(state, is_known_identity=False).close()
    answered = 10
    for attempt in range(KILLS_PER_POINT):
        events, status = run_until_killed(
            state, small_model, f"{name}:{2 + attempt % 4}"
        )
        assert status == STATUS_OF_KILL, events
        for event in events:
            assert not event.get("quarantined", False)
            assert int(str(event.get("started", answered))) >= answered
            if "accepted" in event:
                answered = int(str(event["accepted"]))
                assert event["live"] == []
    with FenceStore.open(state, is_known_identity=True) as store:
        assert store.quarantine_reason is None
        (record,) = store.snapshot().records
    assert record.term >= answered


@pytest.fixture
def small_model(tmp_path: Path) -> Path:
    """A small model of its own."""
    from support.stage_nodes import small_plan  # noqa: PLC0415 - only this test needs it

    return small_plan(tmp_path / "models").path


def run_until_killed(
    state: Path, model: Path, fail_point: str
) -> tuple[list[dict[str, object]], int]:
    daemon = subprocess.run(
        [sys.executable, "-c", DAEMON, str(state), str(model)],
        stdout=subprocess.PIPE,
        check=False,
        env={
            **os.environ,
            VARIABLE: fail_point,
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
    )
    events = [json.loads(line) for line in daemon.stdout.splitlines()]
    return events, daemon.returncode
