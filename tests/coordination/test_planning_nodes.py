"""Which nodes are planned with, and why the others are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.coordination.planning_nodes import (
    candidate_nodes,
    check_side,
    failover_order,
    planner_node,
)
from skippyd.errors import RefusedError
from skippyd.ids import NodeId
from support.async_cluster import wish_of_model
from support.node_reports import GIB, report_of, stage_report


if TYPE_CHECKING:
    from skippyd.coordination.ports import NodeReport


A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
WISH = wish_of_model("a")


def reports(**changed: NodeReport) -> dict[NodeId, NodeReport]:
    known = {name: report_of(name) for name in ("a", "b", "c")}
    return {NodeId(name): report for name, report in (known | changed).items()}


def chosen(
    known: dict[NodeId, NodeReport], *excluded: NodeId
) -> tuple[list[str], dict[NodeId, str]]:
    nodes, left_out = candidate_nodes(known, A, WISH, excluded=excluded)
    return [node.node_id for node in nodes], left_out


def test_every_fit_node_takes_part() -> None:
    assert chosen(reports()) == (["a", "b", "c"], {})


def test_lost_nodes_do_not_but_this_one_always_does() -> None:
    names, left_out = chosen(reports(), A, B)
    assert names == ["a", "c"]
    assert left_out[B] == "lost or failed before"


def test_a_node_that_is_left_out_for_a_reason_of_its_own_says_it() -> None:
    draining = attrs.evolve(report_of("b"), is_draining=True)
    assert chosen(reports(b=draining), B)[1] == {B: "it is draining"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_draining": True}, "draining"),
        ({"generation": 7}, "speaks generation 7"),
        ({"features": ("status-list",)}, "lacks local-gguf-content-id-v1"),
        ({"models": ()}, "no file of org/model with SHA-256 abab"),
    ],
)
def test_a_node_that_does_not_suit_is_left_out_with_the_reason(
    change: dict[str, object], reason: str
) -> None:
    report = report_of("b")
    for name, value in change.items():
        object.__setattr__(report, name, value)
    names, left_out = chosen(reports(b=report))
    assert names == ["a", "c"]
    assert reason in left_out[B]


def test_a_digest_that_is_still_worked_out_is_no_obstacle() -> None:
    assert chosen(reports(b=report_of("b", sha256=None)))[0] == ["a", "b", "c"]


def test_this_node_must_suit() -> None:
    drained = attrs.evolve(report_of("a"), is_draining=True)
    with pytest.raises(RefusedError, match="this node cannot hold the first stage"):
        chosen(reports(a=drained))


def test_named_nodes_are_the_only_ones() -> None:
    wish = attrs.evolve(WISH, node_ids=(A, C))
    nodes, _ = candidate_nodes(reports(), A, wish)
    assert [node.node_id for node in nodes] == ["a", "c"]


def test_named_nodes_must_be_there_at_first_and_may_be_lost_later() -> None:
    wish = attrs.evolve(WISH, node_ids=(A, C, NodeId("d")))
    with pytest.raises(RefusedError, match="d: no such node"):
        candidate_nodes(reports(), A, wish)
    nodes, left_out = candidate_nodes(reports(), A, wish, excluded=(C,))
    assert [node.node_id for node in nodes] == ["a"]
    assert set(left_out) == {"c", "d"}


def test_named_nodes_without_this_one_are_refused() -> None:
    wish = attrs.evolve(WISH, node_ids=(B, C))
    with pytest.raises(RefusedError, match="leave out a, this node"):
        candidate_nodes(reports(), A, wish)


def test_the_present_stage_of_the_model_counts_as_free_memory() -> None:
    stage = attrs.evolve(stage_report("run"), resident_bytes=3 * GIB)
    node = planner_node(report_of("a", memory_bytes=GIB, stages=(stage,)), WISH)
    assert node.usable_bytes == 4 * GIB
    other = attrs.evolve(WISH, model_sha256="other")
    report = report_of("a", memory_bytes=GIB, stages=(stage,))
    assert planner_node(report, other).usable_bytes == GIB


def test_the_deploying_node_takes_over_first_then_memory_then_id() -> None:
    known = reports(c=report_of("c", memory_bytes=64 * GIB))
    assert failover_order(A, [B, C, A], known) == (A, C, B)
    assert failover_order(C, [A, B], known) == (C, A, B)
    assert failover_order(C, [B, A], {}) == (C, A, B)


def test_half_of_the_last_nodes_may_go_on_and_fewer_may_not() -> None:
    known = {A: report_of("a")}
    check_side(WISH, known)
    check_side(attrs.evolve(WISH, ran_on=(A, B)), known)
    with pytest.raises(RefusedError, match="only 1 of the 3 nodes"):
        check_side(attrs.evolve(WISH, ran_on=(A, B, C)), known)
