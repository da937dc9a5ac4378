"""Own runs give way to a rival's published one: once, and only where it is newer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.coordination.ports import Route
from skippyd.coordination.rollout_rivals import RivalWatch
from skippyd.core.coordinator.campaign_effects import PlanMade, StageLost, Start
from skippyd.ids import NodeId, RunId
from support.async_cluster import MODEL, running_cluster
from support.campaigns import PLAN, Rig
from support.node_reports import report_of
from support.rollout_waits import deployed


if TYPE_CHECKING:
    from trio.testing import MockClock

    from skippyd.core.coordinator.claim import ClaimKey

A, B = NodeId("a"), NodeId("b")
KEY: ClaimKey = PLAN.key


def rival(term: int, coordinator: NodeId = B) -> Route:
    return Route(
        model_id=KEY.model_id,
        run_id=RunId("theirs"),
        term=term,
        coordinator_id=coordinator,
        openai_base_url="http://127.0.0.1:1/v1",
    )


def lost(rig: Rig, route: Route | None, *, is_there: bool = True) -> list[StageLost]:
    reports = {B: report_of("b")} if is_there else {}
    return list(RivalWatch(A).lost_runs(rig.campaign, route, reports))


def test_a_served_run_gives_way_to_a_newer_one_only() -> None:
    rig = Rig()
    run = rig.serve()
    assert [gone.run_id for gone in lost(rig, rival(run.term + 1))] == [run.run_id]
    assert lost(rig, rival(run.term - 1)) == []


def test_of_equal_terms_one_gives_way() -> None:
    rig = Rig()
    run = rig.serve()
    # The run is of a, the rival b.
    assert lost(rig, rival(run.term))


def test_an_attempt_that_has_not_claimed_gives_way_whatever_its_term() -> None:
    rig = Rig()
    rig.tell(Start())
    rig.tell(PlanMade(PLAN))
    (gone,) = lost(rig, rival(1))
    assert gone.is_fenced
    rig.tell(gone)
    assert rig.campaign.attempt is None


def test_nobody_gives_way_to_nothing_to_itself_or_to_who_is_gone() -> None:
    rig = Rig()
    term = rig.serve().term + 1
    assert lost(rig, None) == []
    assert lost(rig, rival(term, A)) == []
    assert lost(rig, rival(term), is_there=False) == []


def test_each_run_is_said_once() -> None:
    rig = Rig()
    term = rig.serve().term + 1
    watch, reports = RivalWatch(A), {B: report_of("b")}
    assert list(watch.lost_runs(rig.campaign, rival(term), reports))
    assert list(watch.lost_runs(rig.campaign, rival(term), reports)) == []


@pytest.mark.slow
async def test_two_halves_of_a_partition_come_to_one_run(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b", "c", "d") as cluster:
        cluster.stage_count = 4
        await deployed(cluster)
        for one in ("a", "b"):
            for other in ("c", "d"):
                cluster.cut(one, other)
        await trio.sleep(60)
        apart = {n.routes.route_of(MODEL) for n in cluster.nodes.values()}
        assert len(apart) == 2
        cluster.heal()
        await trio.sleep(60)
        routes = {n.routes.route_of(MODEL) for n in cluster.nodes.values()}
        (route,) = routes
        assert route is not None
        runs = {
            process.load.stage.run_id
            for node in cluster.nodes.values()
            for process in node.stages.processes
        }
        assert runs == {route.run_id}
