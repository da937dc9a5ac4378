"""Three machines' worth of network: namespaces joined by veth, and a one-way cut.

Nothing of the package is imported: three `skippyd run`, `skippyctl`, and HTTP. A node
that is cut off hears the others and is heard by nobody, acknowledgements included. The
stages speak TLS to each other.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import pytest

from support.daemon_groups import joined
from support.daemons import until
from support.namespaces import PluggedDaemon, Switch
from support.old_coordinator import claim_again
from support.unsplit_answers import unsplit_answer


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.native, pytest.mark.slow]

PROMPT = "What is the capital of France?"
TOKENS = 6
NODES = ("atlas", "borea", "ceres")
LEASE_UNSAID = {"lease_until_unix_ms": None}
"""Laid over a run: a lease may be renewed at any time."""


@pytest.fixture
def nodes(
    tmp_path: Path, smollm2_path: Path, switch: Switch
) -> Iterator[tuple[PluggedDaemon, ...]]:
    """Three daemons that have joined by invitation."""
    daemons = tuple(
        PluggedDaemon(
            name=name, folder=tmp_path / name, models=smollm2_path.parent, switch=switch
        )
        for name in NODES
    )
    with joined(daemons, within_s=60):
        yield daemons


@pytest.mark.watchdog(900)
def test_a_chain_across_machines_survives_one_way_cuts_of_a_stage_and_the_coordinator(
    nodes: tuple[PluggedDaemon, ...], switch: Switch, smollm2_path: Path
) -> None:
    """Deploy, replan without the silent node, adopt, and refuse the one that returns."""
    atlas, borea, ceres = nodes
    model = smollm2_path.stem
    expected = unsplit_answer(smollm2_path, PROMPT, TOKENS)

    deployed = atlas.ctl("deploy", model, "--nodes", ",".join(NODES), "--lanes", "1")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    assert _stage_nodes(atlas) == set(NODES)
    _check_stage_addresses(atlas, nodes)
    assert _answer(borea, model) == expected

    # ceres is heard by nobody: the coordinator goes on without it, at a newer term.
    first = _run(atlas)
    switch.silence("ceres")
    until(lambda: atlas.sees()["ceres"] != "ok", "ceres is missed", within_s=25)
    _until_published(atlas, other_than=first["run_id"])
    assert _stage_nodes(atlas) == {"atlas", "borea"}
    second = _run(atlas)
    assert int(second["term"]) > int(first["term"])
    assert _answer(borea, model) == expected
    switch.heal("ceres")
    _until_health(atlas, dict.fromkeys(NODES, "ok"))
    assert _run(atlas) | LEASE_UNSAID == second | LEASE_UNSAID

    old_claim = borea.ask("claims")["items"][0]
    # The coordinator is heard by nobody: the others adopt what it served.
    switch.silence("atlas")
    until(lambda: borea.sees()["atlas"] != "ok", "atlas is missed", within_s=25)
    _until_published(borea, other_than=second["run_id"])
    third = _run(borea)
    assert int(third["term"]) > int(second["term"])
    assert "atlas" not in _stage_nodes(borea)
    assert _answer(borea, model) == expected
    claims = {daemon.name: daemon.ask("claims")["items"] for daemon in (borea, ceres)}

    # It is heard again, and what it claims changes nothing.
    switch.heal("atlas")
    _until_health(borea, dict.fromkeys(NODES, "ok"))
    until(
        lambda: (
            atlas.ask("status")["run"] is not None
            and _run(atlas)["run_id"] == third["run_id"]
        ),
        "the old coordinator follows",
        within_s=60,
    )
    connect = functools.partial(switch.connect, "atlas", "borea")
    assert claim_again(atlas, borea, old_claim, connect=connect) == "StaleTerm"
    for daemon in (borea, ceres):
        assert daemon.ask("claims")["items"] == claims[daemon.name]
        assert _run(daemon)["coordinator_id"] == third["coordinator_id"]
    assert _answer(atlas, model) == expected

    for daemon in nodes:
        assert daemon.stop() == 0, daemon.log


def _check_stage_addresses(
    asked: PluggedDaemon, nodes: tuple[PluggedDaemon, ...]
) -> None:
    """Each stage is at its node's address and speaks TLS as that node."""
    stages = asked.ask("status")["stages"]
    addresses = {row["node_name"]: row["bind_addr"] for row in stages}
    for daemon in nodes:
        address = addresses[daemon.name]
        assert address.rpartition(":")[0] == daemon.switch.address(daemon.name)
        assert asked.shown_certificate(address) == daemon.certificate, daemon.name


def _run(daemon: PluggedDaemon) -> dict[str, str]:
    run = daemon.ask("status")["run"]
    assert isinstance(run, dict)
    return run


def _stage_nodes(daemon: PluggedDaemon) -> set[str]:
    return {row["node_name"] for row in daemon.ask("status")["stages"]}


def _until_health(daemon: PluggedDaemon, health: dict[str, str]) -> None:
    until(lambda: daemon.sees() == health, f"{daemon.name} sees {health}", within_s=60)


def _until_published(daemon: PluggedDaemon, *, other_than: str) -> None:
    def is_published() -> bool:
        run = daemon.ask("status")["run"]
        if run is None or run["route"] is None:
            return False
        return bool(run["run_id"] != other_than)

    until(is_published, f"{daemon.name} knows another route", within_s=150)


def _answer(daemon: PluggedDaemon, model: str) -> str:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": TOKENS,
        "temperature": 0,
    }
    document = json.loads(daemon.post(json.dumps(body)))
    assert "choices" in document, document
    return str(document["choices"][0]["message"]["content"])
