"""What operators see of a request while it runs on two nodes, and afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from support.daemon_groups import joined
from support.daemons import Daemon, until


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.watchdog(180),
]

PROMPT, TOKENS = "Tell me a long story about the sea.", 120
LOOK_SECONDS = 30.0


@pytest.fixture
def nodes(tmp_path: Path, smollm2_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    """Two nodes that serve SmolLM2 together, the first one coordinating."""
    daemons = [
        Daemon(name, tmp_path / name, smollm2_path.parent)
        for name in ("atlas", "borea")
    ]
    with joined(daemons):
        first, second = daemons
        model = smollm2_path.stem
        deployed = first.ctl("deploy", model, "--nodes", "atlas,borea", "--lanes", "2")
        assert deployed.returncode == 0, deployed.stdout + deployed.stderr
        yield first, second
        assert (first.stop(), second.stop()) == (0, 0), first.log


@contextlib.contextmanager
def a_request(daemon: Daemon, model: str) -> Iterator[None]:
    """A long answer on its way, whole at the end."""
    thread = threading.Thread(target=daemon.answer, args=(model, PROMPT, TOKENS))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def session_of(daemon: Daemon) -> dict[str, Any]:
    """The session that has got to its answer."""
    found: list[dict[str, Any]] = []

    def is_there() -> bool:
        found[:] = daemon.ask("sessions")["items"]
        return any(row["state"] == "decode" for row in found)

    until(is_there, f"{daemon.name} shows a session", within_s=LOOK_SECONDS)
    assert len(found) == 1
    return found[0]


def test_a_request_is_seen_on_its_lanes_while_it_runs_and_in_figures_afterwards(
    nodes: tuple[Daemon, Daemon], smollm2_path: Path
) -> None:
    first, second = nodes
    before = [daemon.ask("telemetry") for daemon in nodes]
    with a_request(first, smollm2_path.stem):
        sessions = [session_of(daemon) for daemon in nodes]
        lanes = [daemon.ask("lanes")["items"] for daemon in nodes]

    assert [row["stage_id"] for row in sessions] == ["stage-0", "stage-1"]
    assert sessions[0]["session_id"] == sessions[1]["session_id"]
    assert sessions[0]["request_id"] == sessions[1]["request_id"]
    assert all(row["token_count"] > len(PROMPT.split()) for row in sessions)
    for session, rows in zip(sessions, lanes, strict=True):
        (busy,) = (row for row in rows if row["state"] != "idle")
        assert busy["session_id"] == session["session_id"]
        assert busy["lane_id"] == session["lane_id"]
        assert busy["is_overdue"] is False
    # A connection becomes a lane by its first message.
    assert [len(rows) for rows in lanes] == [2, 1]

    until(
        lambda: not any(daemon.ask("sessions")["items"] for daemon in nodes),
        "the session has ended everywhere",
        within_s=LOOK_SECONDS,
    )
    until(
        lambda: first.ask("telemetry")["ttft"]["count"] > before[0]["ttft"]["count"],
        "the summary has come",
        within_s=LOOK_SECONDS,
    )
    after = [daemon.ask("telemetry") for daemon in nodes]
    assert after[0]["tpot"]["p50_us"] > 0
    assert after[0]["completion_tokens_per_s"] > 0
    assert after[0]["queue_wait"]["count"] > before[0]["queue_wait"]["count"]
    for then, now in zip(before, after, strict=True):
        assert now["lock_wait"]["count"] == then["lock_wait"]["count"] + 1
        assert (now["ring"]["dropped"], now["ring"]["lost"]) == (0, 0)
    assert second.ctl("lanes").stdout.count(" idle ") == 1

    # A process that hangs is told as a reason, and no more when it goes on.
    (stage,) = (row for row in second.ask("status")["stages"] if row["stage_index"])
    os.kill(stage["pid"], signal.SIGSTOP)
    try:
        until(lambda: "silent" in reasons(second), "it is told", within_s=LOOK_SECONDS)
        assert second.ask("status")["daemon"]["state"] == "degraded"
    finally:
        os.kill(stage["pid"], signal.SIGCONT)
    until(lambda: "silent" not in reasons(second), "it is well", within_s=LOOK_SECONDS)


def reasons(daemon: Daemon) -> str:
    """Why a daemon is not simply serving."""
    return " ".join(daemon.ask("status")["daemon"]["reasons"])
