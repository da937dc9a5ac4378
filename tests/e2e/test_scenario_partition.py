"""The seed's scenario 8: three daemons in three networks, parted and joined again.

The side with two of the three planned stages goes on at a newer term; the side with one
claims nothing and loads nothing. Stages speak TLS to each other.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING

import pytest

from support.daemons import until
from support.namespaces import PluggedDaemon, Switch
from support.scenario_nodes import (
    NODES,
    PROMPT,
    TIMERS,
    TOKENS,
    claim_of,
    memory_lines,
    outcome,
    scenario_nodes,
    stage_count,
    until_published,
    verdict,
    write_models,
)


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.scenario_nodes import ScenarioNodes

pytestmark = [pytest.mark.native, pytest.mark.slow]

PARTED, OTHER = "parted", "other"
REFUSED = 6
NOTICE_SECONDS = 30.0


@pytest.fixture
def nodes(tmp_path: Path, switch: Switch) -> Iterator[ScenarioNodes]:
    """Three daemons in networks of their own that have joined each other."""
    models = tmp_path / "models"
    write_models(models, (PARTED, OTHER))
    daemons = [
        PluggedDaemon(
            name=name,
            folder=tmp_path / name,
            models=models,
            extra=TIMERS,
            switch=switch,
            stage_lines=memory_lines(name),
        )
        for name in NODES
    ]
    with scenario_nodes(daemons, models) as started:
        yield started


def _answer(daemon: PluggedDaemon) -> str:
    body = {
        "model": PARTED,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": TOKENS,
        "temperature": 0,
    }
    document = json.loads(daemon.post(json.dumps(body)))
    assert "choices" in document, document
    return str(document["choices"][0]["message"]["content"])


@pytest.mark.watchdog(300)
def test_8_a_network_partition(nodes: ScenarioNodes, switch: Switch) -> None:
    """The majority replans, the minority does nothing; healed, old terms are refused."""
    atlas, borea, ceres = nodes.daemons
    assert isinstance(ceres, PluggedDaemon)
    named = ",".join(NODES)
    deployed = atlas.ctl("deploy", PARTED, "--nodes", named, "--lanes", "1")
    assert deployed.returncode == 0, deployed.stdout + deployed.stderr
    first = until_published(ceres, PARTED)
    expected = _answer(ceres)
    for row in atlas.ask("status")["stages"]:
        daemon = next(each for each in nodes.daemons if each.name == row["node_name"])
        assert ceres.shown_certificate(row["bind_addr"]) == daemon.certificate

    switch.part("ceres", ("atlas", "borea"))
    claimed_before = ceres.ask("claims")["items"]
    # Asked at once, before it is known that nobody else can be reached.
    alone = ceres.ctl("deploy", OTHER, "--nodes", named, "--detach")
    assert alone.returncode == 0, alone.stderr
    waits = f"{OTHER} plan: standing by"
    until(lambda: waits in ceres.log, "ceres is alone", within_s=NOTICE_SECONDS)

    # Two of three go on without it.
    second = until_published(atlas, PARTED, above_term=int(first["term"]))
    rows = atlas.ask("status")["stages"]
    assert [row["node_name"] for row in rows] == ["atlas", "borea"]
    assert claim_of(atlas, PARTED)["term"] == second["term"]
    assert claim_of(borea, PARTED)["term"] == second["term"]
    # The one that is alone loads neither model, whoever asks.
    again = ceres.ctl("deploy", PARTED)
    assert again.returncode == REFUSED, again.stdout + again.stderr
    assert ceres.ask("claims")["items"] == claimed_before
    assert stage_count(ceres) <= 1, "at most its old stage is left"
    assert ceres.ctl("withdraw", OTHER).returncode == 0

    switch.heal("ceres")
    nodes.until_all_are_well()
    claims = [claim_of(daemon, PARTED) for daemon in (atlas, borea)]
    connect = functools.partial(switch.connect, "ceres", "borea")
    with nodes.played("ceres", borea, PARTED, connect=connect) as stale:
        assert verdict(stale.claim(int(first["term"]) + 1)) == "StaleTerm"
        assert outcome(stale.load(int(first["term"]), 1)) == "TermMismatch"
        assert outcome(stale.stop(int(first["term"]), 1)) == "StaleTerm"
    until(
        lambda: stage_count(ceres) == 0, "its old stage ends", within_s=NOTICE_SECONDS
    )
    third = until_published(ceres, PARTED, above_term=int(first["term"]))
    assert third["run_id"] == second["run_id"]
    assert _answer(ceres) == expected
    assert [claim_of(daemon, PARTED) for daemon in (atlas, borea)] == claims
    for each in nodes.daemons:
        assert each.stop() == 0, each.log
