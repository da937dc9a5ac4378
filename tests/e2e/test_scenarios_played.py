"""The seed's scenarios of rivals, late words and leases, on three real daemons.

Where a rival or an old coordinator must act at an exact term, the test plays it: over a
control connection written by hand, with the key of one of the joined nodes. Everything
else is done by `skippyctl`. Each scenario has a model of its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from support.daemons import Daemon, until
from support.scenario_nodes import (
    NODES,
    PROMPT,
    TIMERS,
    TOKENS,
    claim_of,
    outcome,
    scenario_nodes,
    stage_count,
    stage_of,
    until_published,
    verdict,
    write_models,
)
from support.unsplit_answers import unsplit_answer


if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.scenario_nodes import ScenarioNodes

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.watchdog(180)]

RETURNS, SAME_TERM, RACED = "returns", "same-term", "raced"
HIGH_LAST, HIGH_FIRST, LEASED = "high-last", "high-first", "leased"
LOCAL = "local"
MODELS = (RETURNS, SAME_TERM, RACED, HIGH_LAST, HIGH_FIRST, LEASED, LOCAL)
REFUSED = 6
FINAL = 1
"""Index of the final stage of two: it needs no other one to be ready."""

LEASE_MS = 1_500
LOADING_LEASE_MS = 6_000
"""Long enough for a load on a busy machine."""

EXPIRY_SECONDS = 20.0
SETTLE_SECONDS = 90.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioNodes]:
    """Three nodes with a model for each scenario; no test leaves a stage behind."""
    folder = tmp_path_factory.mktemp("nodes")
    models = folder / "models"
    write_models(models, MODELS)
    daemons = tuple(Daemon(name, folder / name, models, TIMERS) for name in NODES)
    with scenario_nodes(daemons, models) as started:
        yield started
        for daemon in daemons:
            assert daemon.stop() == 0, daemon.log


def _until_no_stage(daemon: Daemon) -> None:
    until(lambda: stage_count(daemon) == 0, "no stage is left", within_s=20)


def test_5_an_old_coordinator_comes_back(nodes: ScenarioNodes) -> None:
    """What term 10 still says after term 11 is refused, and harms nothing."""
    ceres = nodes.daemons[2]
    with (
        nodes.played("atlas", ceres, RETURNS) as old,
        nodes.played("borea", ceres, RETURNS) as new,
    ):
        assert verdict(old.claim(10)) == "accepted"
        assert outcome(old.load(10, FINAL)) == "stage_ready"
        assert verdict(new.claim(11)) == "superseded"
        assert stage_count(ceres) == 0, "the claim is answered once it is reaped"
        assert outcome(new.load(11, FINAL)) == "stage_ready"
        served = stage_of(ceres, RETURNS)
        assert served is not None

        assert verdict(old.claim(10)) == "StaleTerm"
        assert outcome(old.load(10, FINAL)) == "TermMismatch"
        assert outcome(old.stop(10, FINAL)) == "StaleTerm"
        still = stage_of(ceres, RETURNS)
        assert still is not None
        assert (still["state"], still["pid"]) == ("READY", served["pid"])
        assert claim_of(ceres, RETURNS)["coordinator_id"] == nodes.ids["borea"]

        assert outcome(new.stop(11, FINAL)) == "stage_stopped"
        assert outcome(new.load(11, FINAL)) == "RunStopped", "a stop is final"
    _until_no_stage(ceres)


def test_6_two_coordinators_race_with_the_same_term(nodes: ScenarioNodes) -> None:
    """The first valid claim of a term is accepted; one that differs conflicts."""
    ceres = nodes.daemons[2]
    with (
        nodes.played("atlas", ceres, SAME_TERM) as first,
        nodes.played("borea", ceres, SAME_TERM) as second,
    ):
        with ThreadPoolExecutor() as pool:
            asked = [pool.submit(each.claim, 10) for each in (first, second)]
            verdicts = sorted(verdict(each.result()) for each in asked)
        assert verdicts == ["ConflictingSameTerm", "accepted"]
        held = claim_of(ceres, SAME_TERM)
        is_first = held["coordinator_id"] == nodes.ids["atlas"]
        winner, loser = (first, second) if is_first else (second, first)
        for answer in (
            loser.claim(10),
            winner.claim(10, run="another"),
            winner.claim(10, topology_hash="another"),
            winner.claim(10, participant_set_hash="another"),
        ):
            assert verdict(answer) == "ConflictingSameTerm"
        assert outcome(loser.load(10, FINAL)) == "CoordinatorMismatch"
        assert verdict(winner.claim(10)) == "accepted", "the same claim is the same"
        assert claim_of(ceres, SAME_TERM) == held
    assert stage_count(ceres) == 0


def test_7_two_coordinators_race_with_different_terms(nodes: ScenarioNodes) -> None:
    """The higher term wins, whichever comes first, and ends what the lower one runs."""
    ceres = nodes.daemons[2]
    with (
        nodes.played("atlas", ceres, HIGH_LAST) as low,
        nodes.played("borea", ceres, HIGH_LAST) as high,
    ):
        assert verdict(low.claim(10)) == "accepted"
        assert outcome(low.load(10, FINAL)) == "stage_ready"
        told = high.probe(12)["result"]
        assert [run["run_id"] for run in told["fenced_runs"]] == ["run-10"]
        assert stage_count(ceres) == 1, "a probe ends nothing"
        assert verdict(high.claim(12)) == "superseded"
        assert stage_count(ceres) == 0
        assert outcome(low.load(10, FINAL)) == "TermMismatch"
        assert claim_of(ceres, HIGH_LAST)["term"] == "12"
    with (
        nodes.played("atlas", ceres, HIGH_FIRST) as low,
        nodes.played("borea", ceres, HIGH_FIRST) as high,
    ):
        assert verdict(high.claim(12)) == "accepted"
        assert verdict(low.claim(10)) == "StaleTerm"
        assert claim_of(ceres, HIGH_FIRST)["term"] == "12"
    assert stage_count(ceres) == 0


def test_7_two_daemons_that_deploy_at_once_end_on_one_run(
    nodes: ScenarioNodes,
) -> None:
    """Both plan the same stages: one is served, all follow it, one claim is held."""
    atlas, borea, ceres = nodes.daemons
    named = ",".join(NODES)
    with ThreadPoolExecutor() as pool:
        for daemon in (atlas, borea):
            pool.submit(daemon.ctl, "deploy", RACED, "--nodes", named, "--detach")

    def have_settled() -> bool:
        runs = [daemon.ask("status")["run"] for daemon in nodes.daemons]
        if any(run is None or run["route"] is None for run in runs):
            return False
        terms = {run["term"] for run in runs}
        claimed = {claim_of(daemon, RACED)["term"] for daemon in nodes.daemons}
        return len(terms) == 1 and claimed == terms

    until(have_settled, "all follow one run", within_s=SETTLE_SECONDS)
    run = until_published(ceres, RACED)
    texts = {daemon.answer(RACED, PROMPT, TOKENS) for daemon in nodes.daemons}
    assert len(texts) == 1
    winner = next(
        d for d in nodes.daemons if nodes.ids[d.name] == run["coordinator_id"]
    )
    withdrawn = winner.ctl("withdraw", RACED)
    assert withdrawn.returncode == 0, withdrawn.stderr
    for daemon in nodes.daemons:
        _until_no_stage(daemon)


def test_9_an_expired_lease_authorises_no_load(nodes: ScenarioNodes) -> None:
    """What runs goes on; a late load is refused until the claim is offered again."""
    ceres = nodes.daemons[2]

    def has_expired() -> bool:
        rows = ceres.ask("leases")["items"]
        return [r["state"] for r in rows if r["model_id"] == LEASED] == ["expired"]

    with nodes.played("atlas", ceres, LEASED) as coordinator:
        assert verdict(coordinator.claim(10, lease_ms=0)) == "ExpiredLease"
        assert verdict(coordinator.claim(10, lease_ms=LEASE_MS)) == "accepted"
        until(has_expired, "the lease is over", within_s=EXPIRY_SECONDS)
        assert outcome(coordinator.load(10, FINAL)) == "ExpiredLease"
        assert stage_count(ceres) == 0

        assert verdict(coordinator.claim(11, lease_ms=LOADING_LEASE_MS)) == "superseded"
        assert outcome(coordinator.load(11, FINAL)) == "stage_ready"
        until(has_expired, "the lease is over", within_s=EXPIRY_SECONDS)
        served = stage_of(ceres, LEASED)
        assert served is not None
        assert served["state"] == "READY", "the end of a lease ends no stage"
        assert outcome(coordinator.load(11, FINAL)) == "ExpiredLease"
        assert verdict(coordinator.claim(10)) == "StaleTerm", "it fences all the same"
        assert verdict(coordinator.claim(12)) == "superseded"

    # The claim outlives the daemon, its lease does not.
    ceres.stop()
    ceres.start()
    ceres.until_ready()
    with nodes.played("atlas", ceres, LEASED) as coordinator:
        assert outcome(coordinator.load(12, FINAL)) == "LeaseNotHeld"
        assert verdict(coordinator.claim(12)) == "accepted"
        assert outcome(coordinator.load(12, FINAL)) == "stage_ready"
        assert outcome(coordinator.stop(12, FINAL)) == "stage_stopped"
    _until_no_stage(ceres)


def test_10_a_local_unfenced_load(nodes: ScenarioNodes) -> None:
    """It needs no claim and ends with one; none is taken from the network."""
    atlas, _, ceres = nodes.daemons
    loaded = ceres.ctl("load-local", LOCAL, "--lanes", "1")
    assert loaded.returncode == 0, loaded.stderr
    address = loaded.stdout.partition(" at ")[2].partition(";")[0]
    expected = unsplit_answer(nodes.models / f"{LOCAL}.gguf", PROMPT, TOKENS)
    assert ceres.answer(LOCAL, PROMPT, TOKENS, at=address) == expected
    status = ceres.ask("status")
    assert status["run"] is None
    assert [row["state"] for row in status["stages"]] == ["READY"]
    assert atlas.refusal(LOCAL)[0] == 503, "no front door follows it"

    stopped = ceres.ctl("stop", f"local-{LOCAL}")
    assert stopped.returncode == 0, stopped.stderr
    _until_no_stage(ceres)
    assert ceres.ctl("load-local", LOCAL).returncode == 0, "as often as one likes"
    with nodes.played("atlas", ceres, LOCAL) as coordinator:
        assert outcome(coordinator.load_unfenced(FINAL)) == "UnfencedFromNetwork"
        told = coordinator.probe(10)["result"]["fenced_runs"]
        assert [run["coordinator_id"] for run in told] == [None]
        assert stage_count(ceres) == 1
        assert verdict(coordinator.claim(10)) == "accepted"
        assert stage_count(ceres) == 0, "the claim has ended it"
    refused = ceres.ctl("load-local", LOCAL)
    assert refused.returncode == REFUSED, refused.stdout
    assert "coordinator term 10 holds this model here" in refused.stderr
