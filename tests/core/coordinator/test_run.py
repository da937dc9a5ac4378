"""A plan as it is sent out."""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.claim import shape_defect
from skippyd.core.coordinator.echo import echo_differences
from skippyd.core.coordinator.instant import MAX_LEASE_MS, Instant
from skippyd.core.coordinator.load_rules import claim_mismatch
from skippyd.core.coordinator.run import Run
from skippyd.ids import CoordinatorId, Term, UnixMs
from support.claims import ready_status
from support.cluster import plan_over


NOW = Instant(UnixMs(1_000), 0)


def run_at(term: int = 7, generation: int = 1) -> Run:
    return Run(
        plan=plan_over("a", "b"),
        coordinator_id=CoordinatorId("a"),
        term=Term(term),
        shutdown_generation=generation,
    )


def test_a_run_is_named_after_its_term_and_generation() -> None:
    assert run_at().run_id == "mesh-split-7-ca978112"
    assert run_at(generation=3).run_id == "mesh-split-7-ca978112-g3"
    assert run_at().topology_id == "topology-mesh-split-7-ca978112"


def test_rivals_with_the_same_term_have_different_runs() -> None:
    rival = attrs.evolve(run_at(), coordinator_id=CoordinatorId("b"))

    assert rival.run_id == "mesh-split-7-3e23e816"


def test_its_claim_is_well_shaped_and_lasts_four_hours() -> None:
    offered = run_at().claim(NOW)

    assert shape_defect(offered, NOW.unix_ms) is None
    assert offered.lease_until_unix_ms - NOW.unix_ms == MAX_LEASE_MS
    assert MAX_LEASE_MS == 4 * 60 * 60 * 1_000


def test_a_renewal_is_a_claim_of_the_same_run_and_another_term_is_not() -> None:
    assert run_at().is_claimed_by(run_at().claim(NOW.later(5)))
    assert not run_at().is_claimed_by(run_at(term=8).claim(NOW))
    assert not run_at().is_claimed_by(run_at(generation=2).claim(NOW))


def test_its_loads_match_its_claim_and_their_honest_echo() -> None:
    run = run_at(generation=2)
    for index, stage in enumerate(run.plan.stages):
        load = run.load(stage)
        assert claim_mismatch(load, run.claim(NOW)) is None
        assert (load.stage_index, load.shutdown_generation) == (index, 2)
        assert (load.layer_start, load.layer_end) == (10 * index, 10 * index + 10)
        assert echo_differences(load, ready_status(load)) == ()


def test_stops_and_cancels_name_the_load_they_end() -> None:
    run = run_at(generation=2)
    stage = run.plan.stages[1]
    load = run.load(stage)
    for ending in (run.stop(stage), run.cancel(stage)):
        assert (ending.key, ending.stage) == (load.key, load.stage)
        assert ending.coordinator_term == load.coordinator_term
        assert ending.shutdown_generation == load.shutdown_generation
