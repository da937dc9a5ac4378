"""Three machines' worth of daemons on loopback, used as an operator uses them.

Nothing of the package is imported: three `skippyd run`, `skippyctl`, and HTTP.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.daemon_groups import joined
from support.daemons import Daemon, until
from support.old_coordinator import claim_again
from support.unsplit_answers import unsplit_answer


if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.native, pytest.mark.slow]

PROMPT = "What is the capital of France?"
TOKENS = 12
NODES = ("atlas", "borea", "ceres")


@pytest.fixture(scope="module")
def expected(smollm2_path: Path) -> str:
    """What the whole model answers in one process, without any of our code."""
    return unsplit_answer(smollm2_path, PROMPT, TOKENS)


@pytest.fixture
def nodes(tmp_path: Path, smollm2_path: Path) -> Iterator[tuple[Daemon, ...]]:
    """Three daemons that know each other."""
    daemons = tuple(
        Daemon(name, tmp_path / name, smollm2_path.parent, has_wire=True)
        for name in NODES
    )
    with joined(daemons):
        yield daemons


def _run_id(daemon: Daemon) -> str | None:
    run = daemon.ask("status")["run"]
    return None if run is None or run["route"] is None else str(run["run_id"])


def _stages(daemon: Daemon) -> dict[str, int]:
    stages = daemon.ask("status")["stages"]
    return {row["node_name"]: row["pid"] for row in stages}


@pytest.mark.watchdog(600)
def test_three_daemons_serve_one_model_lose_a_node_and_lose_their_coordinator(
    nodes: tuple[Daemon, ...], smollm2_path: Path, expected: str
) -> None:
    """Deploy, replan without a node that went deaf, adopt, and refuse the old one."""
    atlas, borea, ceres = nodes
    model = smollm2_path.stem
    status, retry_after, reason = borea.refusal(model)
    assert (status, retry_after is not None) == (503, True), reason

    deployed = atlas.ctl("deploy", model, "--nodes", ",".join(NODES), "--lanes", "1")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    assert set(_stages(atlas)) == set(NODES)
    for daemon in nodes:
        assert daemon.answer(model, PROMPT, TOKENS) == expected, daemon.name

    # What ceres says reaches nobody any more; it still hears the others.
    first_run = _run_id(atlas)
    assert ceres.wire is not None
    ceres.wire.is_cut = True
    until(lambda: atlas.sees()["ceres"] != "ok", "ceres is missed", within_s=25)
    until(
        lambda: _run_id(atlas) not in {None, first_run}, "it is replanned", within_s=90
    )
    assert set(_stages(atlas)) == {"atlas", "borea"}
    assert borea.answer(model, PROMPT, TOKENS) == expected
    ceres.wire.is_cut = False
    until(lambda: atlas.sees()["ceres"] == "ok", "ceres is back", within_s=30)

    # The coordinator hangs; its chain is left alone until a stage of it is lost.
    second_run = _run_id(atlas)
    (second_claim,) = borea.ask("claims")["items"]
    first_stage = _stages(atlas)["atlas"]
    atlas.signal(signal.SIGSTOP)
    until(lambda: borea.sees()["atlas"] != "ok", "atlas is missed", within_s=25)
    route = borea.ask("status")["run"]["route"]
    assert borea.answer(model, PROMPT, TOKENS, at=route) == expected
    os.kill(first_stage, signal.SIGKILL)
    until(
        lambda: _run_id(borea) not in {None, second_run}, "it is adopted", within_s=120
    )
    assert borea.answer(model, PROMPT, TOKENS) == expected
    third_run, adopted = _run_id(borea), borea.ask("claims")["items"]

    # The old coordinator comes back and changes nothing.
    atlas.signal(signal.SIGCONT)
    until(lambda: atlas.sees()["borea"] == "ok", "atlas is back", within_s=30)
    until(lambda: _run_id(atlas) == third_run, "atlas follows", within_s=60)
    assert claim_again(atlas, borea, second_claim) == "StaleTerm"
    assert borea.ask("claims")["items"] == adopted
    for daemon in nodes:
        assert daemon.answer(model, PROMPT, TOKENS) == expected, daemon.name

    withdrawn = borea.ctl("withdraw", model)
    assert withdrawn.returncode == 0, withdrawn.stdout + withdrawn.stderr
    for daemon in nodes:
        assert daemon.stop() == 0, daemon.log


@pytest.mark.watchdog(600)
def test_a_killed_coordinator_is_replaced_and_finds_its_place_again(
    nodes: tuple[Daemon, ...], smollm2_path: Path, expected: str
) -> None:
    """`kill -9`: its stages end with it, the next candidate serves, it follows."""
    atlas, borea, ceres = nodes
    model = smollm2_path.stem
    deployed = atlas.ctl("deploy", model, "--nodes", ",".join(NODES), "--lanes", "1")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    first_run, first_stages = _run_id(atlas), _stages(atlas)

    atlas.signal(signal.SIGKILL)
    atlas.wait()
    until(
        lambda: not Path(f"/proc/{first_stages['atlas']}").exists(),
        "its stage ends with it",
        within_s=10,
    )
    status, retry_after, reason = ceres.refusal(model)
    assert status in {502, 503}, reason
    assert status != 503 or retry_after is not None

    for daemon in (borea, ceres):
        until(
            lambda daemon=daemon: _run_id(daemon) not in {None, first_run},  # type: ignore[misc]
            f"{daemon.name} knows who adopted it",
            within_s=150,
        )
        assert daemon.answer(model, PROMPT, TOKENS) == expected

    second_run = _run_id(borea)
    atlas.start()
    atlas.until_ready()
    until(lambda: _run_id(atlas) == second_run, "atlas follows", within_s=60)
    assert atlas.answer(model, PROMPT, TOKENS) == expected
    for daemon in nodes:
        assert daemon.stop() == 0, daemon.log
