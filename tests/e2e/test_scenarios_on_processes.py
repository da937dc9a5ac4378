"""The seed's scenarios of starting a split and of losing nodes, on three real daemons.

Three `skippyd run`, told what to do by `skippyctl` alone. A node that is to go down at
the very moment a claim arrives dies at a fail point. The stories themselves are those of
`tests/scenarios`; 5, 6, 7, 9 and 10 are played by hand in `test_scenarios_played.py`, the
partition needs networks: `test_scenario_partition.py`.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from support.daemons import Daemon, until
from support.scenario_nodes import (
    NODES,
    PROMPT,
    TIMERS,
    TOKENS,
    claim_of,
    memory_lines,
    published_run,
    scenario_nodes,
    stage_count,
    stage_of,
    stage_pids,
    until_published,
    write_models,
)
from support.unsplit_answers import unsplit_answer


if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from concurrent.futures import ThreadPoolExecutor

    from support.scenario_nodes import ScenarioNodes

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.watchdog(180)]

FAIL_POINT = "SKIPPY_TEST_FAIL_POINT"
DIES_AT_A_CLAIM = {FAIL_POINT: "before-commit:2"}
"""Its start commits once, a claim does so next."""
STATUS_OF_KILL = 137
FRESH, ONE_DOWN, COMES_BACK = "fresh", "one-down", "comes-back"
MANY_DOWN, ORPHANED = "many-down", "orphaned"
LOAD_SECONDS = 30.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioNodes]:
    """Three nodes with a model for each scenario; every test leaves them well."""
    folder = tmp_path_factory.mktemp("nodes")
    models = folder / "models"
    write_models(models, (FRESH, ONE_DOWN, COMES_BACK, MANY_DOWN, ORPHANED))
    daemons = tuple(
        Daemon(name, folder / name, models, f"[stages]\n{memory_lines(name)}{TIMERS}")
        for name in NODES
    )
    with scenario_nodes(daemons, models) as started:
        yield started
        for daemon in daemons:
            assert daemon.stop() == 0, daemon.log


def _deploy(daemon: Daemon, model: str) -> subprocess.CompletedProcess[str]:
    nodes = ",".join(NODES)
    return daemon.ctl("deploy", model, "--nodes", nodes, "--lanes", "1", "--json")


def _events(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _steps(events: list[dict[str, str]]) -> list[str]:
    """Each step once for as long as it lasts."""
    steps = [event["event"] for event in events]
    return [
        step
        for step, before in zip(steps, [None, *steps], strict=False)
        if step != before
    ]


def _loads(events: list[dict[str, str]]) -> list[str]:
    """What was told when the load of a stage began, progress left out."""
    told = (event["message"] for event in events if event["event"] == "load")
    return [message for message in told if ": loading stage-" in message]


def _withdraw(daemon: Daemon, model: str) -> None:
    withdrawn = daemon.ctl("withdraw", model)
    assert withdrawn.returncode == 0, withdrawn.stdout + withdrawn.stderr


def _revive(*daemons: Daemon) -> None:
    """Start nodes again that have died at their fail point."""
    for daemon in daemons:
        assert daemon.wait() == STATUS_OF_KILL, daemon.log
        daemon.environment.clear()
    _start(daemons)


def _arm(*daemons: Daemon) -> None:
    """Let nodes die when the next claim arrives."""
    for daemon in daemons:
        daemon.signal(signal.SIGTERM)
    for daemon in daemons:
        assert daemon.wait() == 0, daemon.log
        daemon.environment.update(DIES_AT_A_CLAIM)
    _start(daemons)


def _start(daemons: tuple[Daemon, ...]) -> None:
    for daemon in daemons:
        daemon.start()
    for daemon in daemons:
        daemon.until_ready()


def test_1_fresh_split_startup(nodes: ScenarioNodes) -> None:
    """All are asked, claimed with one term, loaded from the last stage to the first."""
    atlas, borea, ceres = nodes.daemons
    events = _events(_deploy(atlas, FRESH))
    wanted = ["plan", "probe", "prepare", "claim", "load", "prove", "publish"]
    assert _steps(events) == wanted, events
    loaded = [message.partition("loading ")[2][:7] for message in _loads(events)]
    assert loaded == ["stage-2", "stage-1", "stage-0"]

    claims = [claim_of(daemon, FRESH) for daemon in nodes.daemons]
    assert claims[0] == claims[1] == claims[2]
    assert claims[0]["coordinator_id"] == nodes.ids["atlas"]
    stages = [stage_of(daemon, FRESH) for daemon in (atlas, borea, ceres)]
    assert all(stage is not None and stage["state"] == "READY" for stage in stages)
    expected = unsplit_answer(nodes.models / f"{FRESH}.gguf", PROMPT, TOKENS)
    for daemon in nodes.daemons:
        assert daemon.answer(FRESH, PROMPT, TOKENS) == expected, daemon.name
    _withdraw(atlas, FRESH)


def test_2_one_planned_stage_is_down_during_startup(
    nodes: ScenarioNodes, watchers: ThreadPoolExecutor
) -> None:
    """Two of three accept: it goes on, the load of the third fails, it is replanned."""
    atlas, borea, ceres = nodes.daemons
    _arm(borea)
    nodes.until_all_are_well()
    deploying = watchers.submit(_deploy, atlas, ONE_DOWN)
    assert borea.wait() == STATUS_OF_KILL, borea.log
    events = _events(deploying.result())

    first_run = events[-1]["message"].partition(":")[0]
    runs = [message.partition(":")[0] for message in _loads(events)]
    assert len(set(runs)) == 2, events
    of_first = [message for message in _loads(events) if message.startswith(runs[0])]
    assert [message.partition("loading ")[2][:7] for message in of_first] == ["stage-2"]
    failed = [event["message"] for event in events if event["event"] == "failed"]
    assert len(failed) == 1, failed
    assert "load of stage-1" in failed[0], failed
    assert f"borea ({nodes.ids['borea'][:12]})" in failed[0], failed

    assert first_run == runs[-1]
    claims = [claim_of(daemon, ONE_DOWN) for daemon in (atlas, ceres)]
    assert claims[0] == claims[1]
    _revive(borea)
    nodes.until_all_are_well()
    assert borea.answer(ONE_DOWN, PROMPT, TOKENS) == atlas.answer(
        ONE_DOWN, PROMPT, TOKENS
    )
    _withdraw(atlas, ONE_DOWN)


def test_2_a_stage_that_comes_back_is_claimed_again_before_its_load(
    nodes: ScenarioNodes, watchers: ThreadPoolExecutor
) -> None:
    """The split starts as it was planned when the third returns while another loads."""
    atlas, borea, ceres = nodes.daemons
    _arm(borea)
    nodes.until_all_are_well()
    deploying = watchers.submit(_deploy, atlas, COMES_BACK)
    until(lambda: stage_count(ceres) == 1, "ceres loads", within_s=LOAD_SECONDS)
    (loading,) = stage_pids(ceres)
    os.kill(loading, signal.SIGSTOP)
    try:
        _revive(borea)
        nodes.until_all_are_well()
    finally:
        os.kill(loading, signal.SIGCONT)
    events = _events(deploying.result())

    assert [event for event in events if event["event"] == "failed"] == []
    assert len({message.partition(":")[0] for message in _loads(events)}) == 1
    claims = [claim_of(daemon, COMES_BACK) for daemon in nodes.daemons]
    assert claims[0] == claims[1] == claims[2]
    assert borea.answer(COMES_BACK, PROMPT, TOKENS)
    _withdraw(atlas, COMES_BACK)


def test_3_too_many_planned_stages_are_down(
    nodes: ScenarioNodes, watchers: ThreadPoolExecutor
) -> None:
    """One of three accepts: nothing is loaded; it stands by and tries again later."""
    atlas, borea, ceres = nodes.daemons
    _arm(borea, ceres)
    nodes.until_all_are_well()
    deploying = watchers.submit(_deploy, atlas, MANY_DOWN)
    waits = f"{MANY_DOWN} plan: standing by"
    until(lambda: waits in atlas.log, "atlas stands by", within_s=LOAD_SECONDS)
    _revive(borea, ceres)
    events = _events(deploying.result())

    failed = [event["message"] for event in events if event["event"] == "failed"]
    assert "accepted by 1/3 planned stage(s), need 2" in failed[0], failed
    failed_run = failed[0].partition(":")[0]
    assert not [message for message in _loads(events) if failed_run in message]

    # Two are enough in the end; the third may still be on its way back.
    nodes.until_all_are_well()
    run = until_published(atlas, MANY_DOWN)
    claims = [daemon.ask("claims")["items"] for daemon in nodes.daemons]
    terms = [
        row["term"] for rows in claims for row in rows if row["model_id"] == MANY_DOWN
    ]
    assert terms.count(run["term"]) >= 2, claims
    assert ceres.answer(MANY_DOWN, PROMPT, TOKENS)
    _withdraw(atlas, MANY_DOWN)


def test_4_the_coordinator_disappears_after_the_split_is_running(
    nodes: ScenarioNodes,
) -> None:
    """The stages elect nobody; another node claims a newer term from those left."""
    atlas, borea, ceres = nodes.daemons
    _events(_deploy(atlas, ORPHANED))
    before = until_published(ceres, ORPHANED)
    expected = ceres.answer(ORPHANED, PROMPT, TOKENS)

    atlas.signal(signal.SIGKILL)
    atlas.wait()
    above = int(before["term"])
    after = [until_published(d, ORPHANED, above_term=above) for d in (borea, ceres)]
    assert after[0]["run_id"] == after[1]["run_id"]
    assert after[0]["coordinator_id"] in {nodes.ids["borea"], nodes.ids["ceres"]}
    assert claim_of(borea, ORPHANED) == claim_of(ceres, ORPHANED)
    assert ceres.answer(ORPHANED, PROMPT, TOKENS) == expected

    # It is back (scenario 5): it follows, and nobody's claim has moved.
    adopted = claim_of(borea, ORPHANED)
    atlas.start()
    atlas.until_ready()
    until_published(atlas, ORPHANED, above_term=above)
    nodes.until_all_are_well()
    assert claim_of(borea, ORPHANED) == claim_of(ceres, ORPHANED) == adopted
    assert atlas.answer(ORPHANED, PROMPT, TOKENS) == expected
    adopter = next(
        d for d in nodes.daemons if nodes.ids[d.name] == after[0]["coordinator_id"]
    )
    _withdraw(adopter, ORPHANED)
    assert all(published_run(daemon, ORPHANED) is None for daemon in nodes.daemons)
