"""The stage side of a node: the rules' effects in order, on a real store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.coordination.fence_store import FenceStore, FenceStoreError
from skippyd.coordination.open_requests import StageSideClosedError
from skippyd.coordination.ports import FEATURES
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    Origin,
    PreparationState,
    PreparationStatus,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    StageReady,
    StageState,
    StopStage,
)
from skippyd.core.coordinator.reasons import RejectReason
from skippyd.core.coordinator.verdict import (
    Accepted,
    Rejected,
    Superseded,
)
from support.stage_nodes import (
    Plan,
    StageNode,
    refusal,
    small_plan,
    stage_node,
    states,
    stored_term,
)


if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from skippyd.core.coordinator.messages import LoadStage


pytestmark = pytest.mark.slow  # each has a store whose every commit is synced


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A small model in two stages."""
    return small_plan(tmp_path_factory.mktemp("models"))


# Claims.


async def test_a_claim_is_on_the_disk_before_its_answer(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan) as node:
        for term in (10, 11, 15):
            answer = await node.claim(term)
            assert isinstance(answer, ClaimAnswer)
            assert isinstance(answer.verdict, Accepted | Superseded)
            assert stored_term(tmp_path) == term


async def test_after_a_restart_older_terms_are_refused(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan) as node:
        await node.claim(11)

    async with stage_node(tmp_path, plan, is_known_identity=True) as node:
        stale = await node.claim(10)
        again = await node.claim(11)
        load = plan.load(10, 1)
        refused = await node.ask(load)

    assert isinstance(stale, ClaimAnswer)
    assert isinstance(stale.verdict, Rejected)
    assert stale.verdict.text == "stale coordinator term 10 < 11"
    assert isinstance(again, ClaimAnswer)
    assert isinstance(again.verdict, Accepted)
    assert "differs from accepted term 11" in refusal(refused)


async def test_a_probe_stores_nothing(tmp_path: Path, plan: Plan) -> None:
    async with stage_node(tmp_path, plan) as node:
        answer = await node.ask(ProbeClaim(plan.claim(10)))

    assert isinstance(answer, ProbeAnswer)
    assert isinstance(answer.verdict, Accepted)
    assert stored_term(tmp_path) == 0


async def test_a_store_that_fails_ends_the_node_and_answers_nobody(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: FenceStore, _effect: object) -> None:
        raise FenceStoreError("disk full")

    with pytest.RaisesGroup(FenceStoreError, flatten_subgroups=True):
        async with stage_node(tmp_path, plan) as node:
            monkeypatch.setattr(FenceStore, "write", fail)
            with trio.CancelScope(shield=True), pytest.raises(StageSideClosedError):
                await node.claim(10)
    assert stored_term(tmp_path) == 0


async def test_a_quarantined_node_votes_when_its_operator_says_so(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan, is_known_identity=True) as node:
        refused = await node.claim(10)
        assert "missing" in str(node.stages.quarantine_reason)
        await node.stages.lift_quarantine()
        assert node.stages.quarantine_reason is None
        accepted = await node.claim(10)

    assert isinstance(refused, ClaimAnswer)
    assert isinstance(refused.verdict, Rejected)
    assert refused.verdict.reason is RejectReason.QUARANTINED
    assert isinstance(accepted, ClaimAnswer)
    assert isinstance(accepted.verdict, Accepted)


async def test_a_quarantine_ends_by_itself_after_the_longest_lease(
    tmp_path: Path, plan: Plan, mock_clock: MockClock
) -> None:
    async with stage_node(tmp_path, plan, is_known_identity=True) as node:
        mock_clock.jump(4 * 60 * 60 + 1)
        answer = await node.claim(10)

    assert isinstance(answer, ClaimAnswer)
    assert isinstance(answer.verdict, Rejected | Accepted)
    async with stage_node(tmp_path, plan, is_known_identity=True) as node:
        assert node.stages.quarantine_reason is None


# Preparations.


async def prepared(node: StageNode, load: LoadStage) -> PreparationStatus:
    while True:
        status = await node.ask(PrepareStage(load))
        assert isinstance(status, PreparationStatus)
        if status.state in {PreparationState.READY, PreparationState.FAILED}:
            return status
        await trio.lowlevel.checkpoint()


async def test_a_preparation_is_ready_when_the_part_is_here_and_alike(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan) as node:
        status = await prepared(node, plan.load(10, 1))

    assert status.state is PreparationState.READY
    assert stored_term(tmp_path) == 0


async def test_a_preparation_names_the_field_that_differs(
    tmp_path: Path, plan: Plan
) -> None:
    build = attrs.evolve(plan.build, cpu_features="AVX512")
    theirs = attrs.evolve(plan, build=build)
    async with stage_node(tmp_path, plan) as node:
        status = await prepared(node, theirs.load(10, 1))

    assert status.state is PreparationState.FAILED
    assert "profile identity mismatch: profile cpu, backend_id" in status.error


async def test_a_draining_node_takes_nothing_new(tmp_path: Path, plan: Plan) -> None:
    async with stage_node(tmp_path, plan) as node:
        node.stages.begin_drain()
        status = await prepared(node, plan.load(10, 1))
        await node.claim(10)
        reply = await node.ask(plan.load(10, 1))
        assert node.stages.report().is_draining
        node.stages.end_drain()
        ready = await node.serve(11)

    assert status.error == "this node is draining and takes no new stage"
    assert "draining" in refusal(reply)
    assert isinstance(ready, StageReady)


# Reports and ends.


async def test_a_report_says_who_and_what_this_node_is(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan) as node:
        before = node.stages.report()
        changed = node.stages.changed()
        await node.serve(10)
        after = node.stages.report()

    assert (before.node_id, before.name, before.generation) == ("node-1", "node-1", 8)
    assert before.features == FEATURES
    assert before.memory_bytes == 16 * 2**30
    assert [model.name for model in before.models] == ["small"]
    assert before.stages == ()
    assert changed.is_set()
    assert after.sequence > before.sequence
    assert not node.stages.changed().is_set()


async def test_stage_0_is_asked_for_the_health_of_its_chain(
    tmp_path: Path, plan: Plan
) -> None:
    plan = attrs.evolve(plan, ports=(0, 19_001))
    async with stage_node(tmp_path, plan, node_id="node-0") as node:
        await node.claim(10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.ask, plan.load(10, 0))
            child = await node.supervisor.next_child()
            child.serve("http://127.0.0.1:18000/v1")
        await node.until(lambda: node.stages.report().stages[0].health == "ok")
        (report,) = node.stages.report().stages

    assert report.openai_base_url == "http://127.0.0.1:18000/v1"
    assert set(child.launch.documents) == {"--config", "--topology"}
    assert "--openai-bind-addr" in child.launch.arguments


async def test_stopping_ends_and_reaps_every_process(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan) as node:
        await node.serve(10)
        await node.stages.stop_all(1.0)
        assert node.stages.report().stages == ()

    assert node.supervisor.children[0].orders[-1] == "terminate"


async def test_what_the_operator_stops_is_reported_as_such(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan) as node:
        for term, origin in ((10, Origin.NETWORK), (11, Origin.ADMIN)):
            await node.serve(term)
            load = plan.load(term, 1)
            stop = StopStage(
                key=load.key,
                stage=load.stage,
                coordinator_term=load.coordinator_term,
                shutdown_generation=load.shutdown_generation,
            )
            await node.ask(stop, origin=origin)
        report = node.stages.report()

    assert report.stopped_runs == (plan.load(11, 1).stage.run_id,)


async def test_a_sender_that_goes_away_changes_nothing(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan) as node:
        await node.claim(10)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.ask, plan.load(10, 1))
            child = await node.supervisor.next_child()
            nursery.cancel_scope.cancel()
        child.serve()
        await node.until(lambda: states(node) == [StageState.READY])
        again = await node.ask(plan.load(10, 1))

    assert isinstance(again, StageReady)


async def test_a_duplicated_claim_and_load_have_one_effect(
    tmp_path: Path, plan: Plan
) -> None:
    async with stage_node(tmp_path, plan) as node:
        first = await node.serve(10)
        second = await node.serve(10)
        claims = [await node.ask(ClaimCoordinator(plan.claim(10))) for _ in range(2)]

    assert first == second
    assert len(node.supervisor.children) == 1
    assert all(isinstance(answer, ClaimAnswer) for answer in claims)


async def test_a_watchdog_may_ask_the_store(tmp_path: Path, plan: Plan) -> None:
    async with stage_node(tmp_path, plan) as node:
        await node.stages.check_store()
        node.stages.store.close()
        with pytest.raises(FenceStoreError, match="cannot be"):
            await node.stages.check_store()
