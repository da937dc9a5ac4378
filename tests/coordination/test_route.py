"""Routes: the newest term holds, and only its own coordinator takes one away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.coordination.ports import NodeReport, Route
from skippyd.coordination.route import MAX_ROUTES, RouteTable, loss_of_peers
from skippyd.ids import NodeId, RunId
from support.async_cluster import AsyncNode, running_cluster
from support.node_reports import report_of, stage_report


if TYPE_CHECKING:
    from trio.testing import MockClock

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def route_by(coordinator: NodeId, term: int, *, model: str = "m") -> Route:
    return Route(
        model_id=model,
        run_id=RunId(f"run-{term}"),
        term=term,
        coordinator_id=coordinator,
        openai_base_url=f"http://127.0.0.1:{term}/v1",
        candidates=(A, B),
    )


def table(*heard: Route) -> RouteTable:
    made = RouteTable(C)
    for route in heard:
        made.hear(route.coordinator_id, route, route.model_id)
    return made


def test_a_newer_route_replaces_an_older_one_and_never_the_other_way_round() -> None:
    routes = table(route_by(A, 1), route_by(B, 2), route_by(A, 1))
    assert routes.published() == (route_by(B, 2),)


def test_of_equal_terms_everybody_follows_the_same_one() -> None:
    for heard in ((route_by(A, 1), route_by(B, 1)), (route_by(B, 1), route_by(A, 1))):
        assert table(*heard).published() == (route_by(B, 1),)


def test_only_its_own_coordinator_takes_a_route_away() -> None:
    routes = table(route_by(B, 2))
    routes.hear(A, None, "m")
    assert routes.route_of("m") == route_by(B, 2)
    routes.hear(B, None, "m")
    assert routes.route_of("m") is None
    assert "withdrew" in routes.closed_reason("m")


def test_an_older_route_does_not_come_back_after_a_withdrawal() -> None:
    routes = table(route_by(B, 2))
    routes.hear(B, None, "m")
    routes.hear(A, route_by(A, 1), "m")
    assert routes.route_of("m") is None
    routes.hear(B, route_by(B, 2), "m")
    assert routes.route_of("m") == route_by(B, 2)


def test_nobody_speaks_for_another_node_or_another_model() -> None:
    routes = table()
    routes.hear(A, route_by(B, 2), "m")
    routes.hear(B, route_by(B, 2), "other")
    assert routes.published() == ()


def test_the_end_of_a_model_is_heard_once_and_told() -> None:
    routes = table(route_by(B, 2))
    ended: list[str] = []
    routes.on_end(ended.append)
    end = attrs.evolve(route_by(B, 2), is_ended=True, reason="asked to")
    routes.hear(B, end, "m")
    assert (routes.published(), ended) == ((), ["m"])
    routes.hear(A, attrs.evolve(route_by(A, 1), is_ended=True), "m")
    assert ended == ["m"]


def test_readers_are_woken_by_changes_only() -> None:
    routes = table(route_by(B, 2))
    changed = routes.changed()
    routes.hear(B, route_by(B, 2), "m")
    assert not changed.is_set()
    routes.hear(B, route_by(B, 3), "m")
    assert changed.is_set()


def test_a_table_is_bounded() -> None:
    routes = table(*(route_by(A, 1, model=f"m{i}") for i in range(MAX_ROUTES + 5)))
    assert len(routes.published()) == MAX_ROUTES


def test_a_withdrawal_of_an_older_run_leaves_the_newer_route() -> None:
    routes = RouteTable(A)
    routes.publish(route_by(A, 1))
    routes.publish(route_by(A, 2))
    assert not routes.withdraw("m", RunId("run-1"), "old")
    assert routes.withdraw("m", RunId("run-2"), "asked to")
    assert routes.closed_reason() == "asked to"


def test_a_route_whose_run_is_gone_at_its_node_is_dropped() -> None:
    def report(*runs: str) -> dict[NodeId, NodeReport]:
        return {B: report_of("b", stages=tuple(stage_report(run) for run in runs))}

    routes = table(route_by(B, 2))
    # The route may come before the report that shows its run.
    routes.reconcile(report())
    assert routes.route_of("m") is not None
    routes.reconcile(report("run-2"))
    routes.reconcile({})
    assert routes.route_of("m") is not None
    routes.reconcile(report())
    assert routes.route_of("m") is None
    assert "ended on its first node" in routes.closed_reason("m")


def test_users_of_a_run_are_counted() -> None:
    routes = RouteTable(A)
    with routes.using(RunId("r")), routes.using(RunId("r")):
        assert routes.use_count(RunId("r")) == 2
    assert routes.use_count(RunId("r")) == 0


def test_what_is_not_served_has_a_reason() -> None:
    routes = RouteTable(A)
    assert "deploy" in routes.closed_reason()
    assert routes.closed_reason("m") == "m is not published"
    routes.note("m", "load: loading stage-1")
    assert routes.closed_reason("m") == "load: loading stage-1"
    routes.forget("m")
    assert routes.closed_reason("m") == "m is not published"


async def test_a_lost_first_node_is_named(autojump_clock: MockClock) -> None:
    async with running_cluster("a", "b") as cluster:
        node: AsyncNode = cluster.nodes[A]
        routes = RouteTable(A, loss_of_peers(node))
        assert routes.lost_reason(A) is None
        assert routes.lost_reason(B) is None
        assert "no peer" in str(routes.lost_reason(C))
        cluster.nodes[B].crash()
        assert "broken" in str(routes.lost_reason(B))
