"""A wall clock that is stepped an hour under real daemons: served on, fenced on.

Leases stand on two clocks. A clock set forward may only end one earlier, a clock set
back must not make one longer, and terms only grow whatever the coordinator's clock says.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from support.daemons import Daemon, until
from support.machine_faults import MachineFaults, build_library, reason_against
from support.scenario_nodes import (
    NODES,
    PROMPT,
    TIMERS,
    TOKENS,
    claim_of,
    outcome,
    published_run,
    scenario_nodes,
    verdict,
    write_models,
)


if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.raw_coordinator import RawCoordinator
    from support.scenario_nodes import ScenarioNodes

MISSING = reason_against()

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.watchdog(180),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]

SERVED, LEASED = "served", "leased"
HOUR_S = 3600.0
NS_PER_S = 1_000_000_000
MINUTE_MS = 60_000
SHORT_LEASE_MS = 3_000
NOTICED_S = 20.0
A_LITTLE_S = 60.0
OLD_TERM, SHORT_TERM = 7, 8


@attrs.define(eq=False)
class SteppedNodes:
    """Three nodes that serve a model together, two of them on clocks that are stepped.

    Args:
        nodes: All three.
        machines: By name of the node; the first one coordinates.
        answer: What the chain answers.
    """

    nodes: ScenarioNodes
    machines: dict[str, MachineFaults]
    answer: str = ""

    def step(self, name: str, seconds: float) -> None:
        """Set a node's clock off, and see that the daemon lives by it."""
        self.machines[name].step_wall(seconds)
        node = next(each for each in self.nodes.daemons if each.name == name)
        until(
            lambda: abs(_clock_ahead_s(node) - seconds) < A_LITTLE_S,
            f"{name} calls it {seconds:+g} s",
            within_s=NOTICED_S,
        )

    def check_answers(self) -> None:
        """Each door answers what was answered before."""
        for daemon in self.nodes.daemons:
            assert daemon.answer(SERVED, PROMPT, TOKENS) == self.answer, daemon.name

    def claims(self) -> list[dict[str, Any]]:
        """The claim for the served model that each node has accepted."""
        return [claim_of(daemon, SERVED) for daemon in self.nodes.daemons]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SteppedNodes]:
    """The nodes, with a chain that was deployed an hour ahead of the others' clocks."""
    folder = tmp_path_factory.mktemp("clock")
    models = folder / "models"
    write_models(models, (SERVED, LEASED))
    daemons = tuple(Daemon(name, folder / name, models, TIMERS) for name in NODES)
    atlas, borea, _ = daemons
    library = build_library(folder)
    with (
        MachineFaults.opened(library, folder / "atlas-page") as first,
        MachineFaults.opened(library, folder / "borea-page") as second,
    ):
        atlas.environment |= first.environment
        borea.environment |= second.environment
        with scenario_nodes(daemons, models) as nodes:
            made = SteppedNodes(nodes, {"atlas": first, "borea": second})
            made.step("atlas", HOUR_S)
            _deploy(atlas)
            made.step("atlas", 0.0)
            made.answer = atlas.answer(SERVED, PROMPT, TOKENS)
            yield made
            for daemon in daemons:
                assert daemon.stop() == 0, daemon.log


@pytest.fixture
def stepped(serving: SteppedNodes) -> Iterator[SteppedNodes]:
    """The nodes; afterwards their clocks are right again."""
    yield serving
    for name in serving.machines:
        serving.step(name, 0.0)


def test_a_chain_goes_on_answering_while_clocks_under_it_are_stepped(
    stepped: SteppedNodes,
) -> None:
    """Forward and back, at the coordinator and at another node, two hours apart."""
    daemons = stepped.nodes.daemons
    run, claims = published_run(daemons[2], SERVED), stepped.claims()
    for seconds in (HOUR_S, -HOUR_S):
        stepped.step("atlas", seconds)
        stepped.check_answers()
        stepped.step("borea", -seconds)
        stepped.check_answers()
    stepped.nodes.until_all_are_well()
    assert published_run(daemons[2], SERVED) == run
    assert stepped.claims() == claims
    assert "event=node_lost" not in "".join(daemon.log for daemon in daemons)


def test_a_clock_set_forward_ends_a_lease_and_set_right_lets_it_hold_again(
    stepped: SteppedNodes,
) -> None:
    borea = stepped.nodes.daemons[1]
    with stepped.nodes.played("atlas", borea, LEASED) as coordinator:
        taken = coordinator.claim(OLD_TERM, lease_ms=30 * MINUTE_MS)
        assert verdict(taken) == "accepted"
        stepped.step("borea", HOUR_S)
        assert _lease(borea)["left_ms"] == 0
        assert outcome(coordinator.load(OLD_TERM, 1)) == "ExpiredLease"
        stepped.step("borea", 0.0)
        assert _lease(borea)["left_ms"] > 0
        assert outcome(coordinator.load(OLD_TERM, 1)) == "stage_ready"
        assert outcome(coordinator.stop(OLD_TERM, 1)) == "stage_stopped"


def test_a_clock_set_back_makes_no_lease_longer_and_revives_no_claim(
    stepped: SteppedNodes,
) -> None:
    borea = stepped.nodes.daemons[1]
    with stepped.nodes.played("atlas", borea, LEASED) as coordinator:
        first = coordinator.claim(SHORT_TERM, lease_ms=SHORT_LEASE_MS)
        assert verdict(first) in {"accepted", "superseded"}
        lease_until_unix_ms = int(_lease(borea)["lease_until_unix_ms"])
        stepped.step("borea", -HOUR_S)
        until(
            lambda: _lease(borea)["left_ms"] == 0,
            "the lease is over though its wall clock says an hour",
            within_s=NOTICED_S,
        )
        assert outcome(coordinator.load(SHORT_TERM, 1)) == "ExpiredLease"
        for late_ms in (0, MINUTE_MS):
            late = _claim_until(coordinator, lease_until_unix_ms - late_ms)
            assert verdict(late) == "ExpiredLease"
        assert verdict(coordinator.claim(OLD_TERM)) == "StaleTerm"
        assert outcome(coordinator.load(SHORT_TERM, 1)) == "ExpiredLease"
        assert _lease(borea)["left_ms"] == 0


def test_deployments_go_on_after_the_clocks_of_coordinator_and_node_went_back(
    stepped: SteppedNodes,
) -> None:
    """By two hours since the first deployment: what is claimed now is newer still."""
    atlas, borea, ceres = stepped.nodes.daemons
    ahead = _term(ceres)
    assert ahead / NS_PER_S > time.time() + HOUR_S / 2, "claimed by a clock set forward"
    stepped.step("atlas", -HOUR_S)
    done = atlas.ctl("withdraw", SERVED)
    assert done.returncode == 0, done.stdout + done.stderr
    stepped.machines["borea"].step_wall(-HOUR_S)
    assert borea.stop() == 0, borea.log
    borea.start()
    borea.until_ready()
    stepped.nodes.until_all_are_well()
    _deploy(atlas)
    assert _term(ceres) > ahead
    stepped.check_answers()
    with stepped.nodes.played("atlas", borea, SERVED) as coordinator:
        assert verdict(coordinator.claim(ahead)) == "StaleTerm"
    stepped.check_answers()


def _clock_ahead_s(daemon: Daemon) -> float:
    """How far a daemon's clock is ahead, by when it heard another node last."""
    rows = daemon.ask("nodes")["items"]
    heard_ms = max(row["last_heard_unix_ms"] or 0 for row in rows)
    return float(heard_ms) / 1000 - time.time()


def _lease(daemon: Daemon) -> dict[str, Any]:
    rows: list[dict[str, Any]] = daemon.ask("leases")["items"]
    return next(row for row in rows if row["model_id"] == LEASED)


def _claim_until(coordinator: RawCoordinator, unix_ms: int) -> dict[str, Any]:
    """The short claim once more, its lease not later than it was."""
    left_ms = unix_ms - int(time.time() * 1000)
    return coordinator.claim(SHORT_TERM, lease_ms=left_ms - 1000)


def _term(daemon: Daemon) -> int:
    run = published_run(daemon, SERVED)
    assert run is not None
    return int(run["term"])


def _deploy(daemon: Daemon) -> None:
    nodes = ",".join(NODES)
    done = daemon.ctl("deploy", SERVED, "--nodes", nodes, "--lanes", "1")
    assert done.returncode == 0, done.stdout + done.stderr
