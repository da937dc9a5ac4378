"""Keys, ports and settings of runs: what travels with which request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.coordination.rollout_runs import (
    KEPT_RUNS,
    RunBook,
    answer_timeout_s,
    fresh_run_key,
)
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import ClaimCoordinator, PrepareStage, ProbeClaim
from skippyd.core.coordinator.run import Run
from skippyd.errors import ConfigError
from skippyd.ids import CoordinatorId, Term, UnixMs
from support.claims import ready_status
from support.cluster import plan_over
from support.rollout_plans import PLAN, PLANNED, SETTINGS


if TYPE_CHECKING:
    from skippyd.coordination.ports import StageRunSettings


def run_of(term: int = 5) -> Run:
    return Run(
        plan=PLAN,
        coordinator_id=CoordinatorId("a"),
        term=Term(term),
        shutdown_generation=1,
    )


def book() -> RunBook:
    made = RunBook()
    made.plan_made(PLANNED)
    return made


def loading(made: RunBook, run: Run, index: int) -> StageRunSettings:
    settings = made.settings_of(run.load(PLAN.stages[index]), run)
    assert settings is not None
    return settings


def test_run_keys_are_32_random_bytes() -> None:
    one, other = fresh_run_key(), fresh_run_key()
    assert len(bytes.fromhex(one)) == 32
    assert one != other


def test_prepares_carry_settings_without_a_key_and_claims_carry_nothing() -> None:
    run = run_of()
    prepare = PrepareStage(run.load(PLAN.stages[0]))
    assert book().settings_of(prepare, run) == SETTINGS
    now = Instant(UnixMs(1), 1)
    for request in (ProbeClaim(run.claim(now)), ClaimCoordinator(run.claim(now))):
        assert book().settings_of(request, run) is None
    assert book().settings_of(run.stop(PLAN.stages[0]), run) is None


def test_every_load_of_a_run_carries_one_key_and_another_run_another() -> None:
    made, run = book(), run_of()
    keys = {loading(made, run, 1).run_key, loading(made, run, 0).run_key}
    assert len(keys) == 1
    assert loading(made, run_of(6), 1).run_key not in keys


def test_a_ready_stage_hands_its_port_to_those_before_it() -> None:
    made, run = book(), run_of()
    loading(made, run, 1)
    status = attrs.evolve(
        ready_status(run.load(PLAN.stages[1])), bind_addr="0.0.0.0:19007"
    )
    made.stage_ready(status)
    # The port is the stage's word, the address the plan's.
    assert [(s.host, s.port) for s in loading(made, run, 0).stages] == [
        ("127.0.0.1", 0),
        ("127.0.0.1", 19_007),
    ]


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:0", ""])
def test_a_ready_stage_without_an_address_is_an_error(address: str) -> None:
    made, run = book(), run_of()
    loading(made, run, 1)
    status = attrs.evolve(ready_status(run.load(PLAN.stages[1])), bind_addr=address)
    with pytest.raises(ConfigError):
        made.stage_ready(status)


def test_a_stage_of_an_unknown_run_or_place_changes_nothing() -> None:
    made, run = book(), run_of()
    made.stage_ready(ready_status(run.load(PLAN.stages[1])))
    loading(made, run, 1)
    made.stage_ready(
        attrs.evolve(ready_status(run.load(PLAN.stages[1])), stage_index=7)
    )
    assert [s.port for s in loading(made, run, 0).stages] == [0, 0]


def test_a_load_without_a_plan_or_of_another_run_has_no_settings() -> None:
    run = run_of()
    load = run.load(PLAN.stages[1])
    assert RunBook().settings_of(load, run) is None
    assert book().settings_of(load, None) is None
    assert book().settings_of(load, run_of(6)) is None


def test_only_the_newest_runs_are_kept() -> None:
    made = book()
    first = loading(made, run_of(1), 1).run_key
    for term in range(2, KEPT_RUNS + 2):
        loading(made, run_of(term), 1)
    assert loading(made, run_of(1), 1).run_key != first


def test_only_the_plan_that_was_made_is_known() -> None:
    assert book().planned_of(PLAN) is PLANNED
    assert book().planned_of(plan_over("a", "b", "c")) is None


def test_a_load_may_take_as_long_as_its_plan_says() -> None:
    run = run_of()
    load_s = answer_timeout_s(run.load(PLAN.stages[0]), PLAN)
    assert load_s > PLAN.load_timeout_ms / 1_000
    claim = ClaimCoordinator(run.claim(Instant(UnixMs(1), 1)))
    # A claim that fences is answered within 10 s.
    assert 10 < answer_timeout_s(claim, PLAN) < 20
