"""Operators take nodes and stages away from running chains, on three real daemons."""

from __future__ import annotations

import json
import urllib.error
from typing import TYPE_CHECKING, Any

import pytest

from support.daemons import Daemon, until
from support.scenario_nodes import (
    NODES,
    PROMPT,
    TIMERS,
    TOKENS,
    memory_lines,
    published_run,
    scenario_nodes,
    stage_count,
    until_published,
    write_models,
)


if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import ThreadPoolExecutor

    from support.scenario_nodes import ScenarioNodes

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.watchdog(180),
]

DRAINED, LEFT, STOPPED, ENDED = "drained", "left", "stopped", "ended"
MOVED_SECONDS = 30.0
QUIET_LOOKS = 30
"""Looks that take longer than a coordinator would need to plan anew."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioNodes]:
    """Three nodes of which two hold a model; every test leaves them well and idle."""
    folder = tmp_path_factory.mktemp("nodes")
    models = folder / "models"
    write_models(models, (DRAINED, LEFT, STOPPED, ENDED))
    daemons = tuple(
        Daemon(name, folder / name, models, f"[stages]\n{memory_lines(name)}{TIMERS}")
        for name in NODES
    )
    with scenario_nodes(daemons, models) as started:
        yield started
        for daemon in daemons:
            assert daemon.stop() == 0, daemon.log


def deployed(daemon: Daemon, model: str, *flags: str) -> dict[str, Any]:
    """Deploy a model on two nodes; returns the event that it was published."""
    done = daemon.ctl("deploy", model, "--lanes", "1", "--json", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    published: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return published


def term_of(daemon: Daemon, model: str) -> int:
    """The term of the run that a node follows."""
    run = published_run(daemon, model)
    assert run is not None
    return int(run["term"])


def other_two(nodes: ScenarioNodes) -> tuple[Daemon, Daemon]:
    """The node that has the second stage, and the one that has none."""
    _, borea, ceres = nodes.daemons
    counts = (stage_count(borea), stage_count(ceres))
    assert sorted(counts) == [0, 1]
    return (borea, ceres) if counts[0] else (ceres, borea)


def withdrawn(daemon: Daemon, model: str, nodes: ScenarioNodes) -> None:
    """Withdraw a model and wait until no process is left."""
    done = daemon.ctl("withdraw", model)
    assert done.returncode == 0, done.stdout + done.stderr
    until(
        lambda: sum(map(stage_count, nodes.daemons)) == 0,
        "every stage is reaped",
        within_s=MOVED_SECONDS,
    )


def answers(daemon: Daemon, model: str) -> bool:
    """Whether its front door answers now."""
    try:
        return bool(daemon.answer(model, PROMPT, TOKENS))
    except urllib.error.HTTPError:
        return False


def test_a_drained_node_is_moved_away_from_and_comes_back_when_asked(
    nodes: ScenarioNodes,
) -> None:
    atlas = nodes.daemons[0]
    deployed(atlas, DRAINED)
    term = term_of(atlas, DRAINED)
    worker, spare = other_two(nodes)

    drained = worker.ctl("drain")
    assert drained.returncode == 0, drained.stderr
    until_published(atlas, DRAINED, above_term=term, within_s=MOVED_SECONDS)
    until(lambda: stage_count(worker) == 0, "none is left", within_s=MOVED_SECONDS)
    assert stage_count(spare) == 1
    assert answers(atlas, DRAINED)
    assert atlas.sees()[worker.name] == "draining"
    assert worker.ask("status")["daemon"]["state"] == "draining"
    assert f"{DRAINED} failed:" not in atlas.log

    assert worker.ctl("drain", "--undo").returncode == 0
    nodes.until_all_are_well()
    withdrawn(atlas, DRAINED, nodes)


def test_a_drained_coordinator_hands_its_deployments_over(
    nodes: ScenarioNodes,
) -> None:
    atlas, borea, ceres = nodes.daemons
    deployed(atlas, LEFT)
    term = term_of(atlas, LEFT)

    assert atlas.ctl("drain").returncode == 0
    run = until_published(borea, LEFT, above_term=term)
    assert run["coordinator_id"] in {nodes.ids["borea"], nodes.ids["ceres"]}
    assert stage_count(atlas) == 0
    assert answers(ceres, LEFT)

    assert atlas.ctl("drain", "--undo").returncode == 0
    nodes.until_all_are_well()
    by_id = {nodes.ids[daemon.name]: daemon for daemon in nodes.daemons}
    withdrawn(by_id[run["coordinator_id"]], LEFT, nodes)


def test_a_stage_that_was_stopped_comes_back_only_by_a_deployment(
    nodes: ScenarioNodes,
) -> None:
    atlas = nodes.daemons[0]
    deployed(atlas, STOPPED)
    term = term_of(atlas, STOPPED)
    worker, spare = other_two(nodes)

    assert worker.ctl("stop", "--all").returncode == 0
    until_published(atlas, STOPPED, above_term=term)
    assert (stage_count(worker), stage_count(spare)) == (0, 1)
    withdrawn(atlas, STOPPED, nodes)
    deployed(atlas, STOPPED, "--nodes", f"{atlas.name},{worker.name}")
    assert other_two(nodes) == (worker, spare)
    withdrawn(atlas, STOPPED, nodes)


def test_a_stop_on_the_coordinating_node_ends_the_deployment_until_the_next_one(
    nodes: ScenarioNodes, watchers: ThreadPoolExecutor
) -> None:
    atlas, _, _ = nodes.daemons
    last = str(deployed(atlas, ENDED)["sequence"])
    watching = watchers.submit(
        atlas.ctl, "watch", ENDED, "--after", last, "--once", "--json"
    )

    stopped = atlas.ctl("stop", "--all")
    assert stopped.returncode == 0, stopped.stderr
    assert "deployed again" in stopped.stdout
    watched = watching.result()
    assert watched.returncode == 0, watched.stdout + watched.stderr
    assert json.loads(watched.stdout.splitlines()[-1])["event"] == "withdraw"
    until(
        lambda: sum(map(stage_count, nodes.daemons)) == 0,
        "every stage is reaped",
        within_s=MOVED_SECONDS,
    )
    for _ in range(QUIET_LOOKS):
        assert sum(map(stage_count, nodes.daemons)) == 0
    assert "is not deployed" in atlas.ctl("withdraw", ENDED).stderr

    deployed(atlas, ENDED)
    assert answers(atlas, ENDED)
    withdrawn(atlas, ENDED, nodes)
