from __future__ import annotations

from skippyd.core.coordinator.absent import AbsentNodes
from skippyd.ids import NodeId


A, B, C, D = (NodeId(name) for name in "abcd")


def test_every_kind_is_left_out_once_and_in_order() -> None:
    absent = AbsentNodes()
    absent.lost |= {C, A}
    absent.leaving.add(D)
    absent.stopped.add(B)
    absent.blamed = (C,)
    assert absent.excluded == (A, B, C, D)


def test_a_node_that_is_reachable_is_back_unless_it_leaves_or_was_stopped() -> None:
    absent = AbsentNodes()
    absent.lost |= {A, B, C}
    absent.blamed = (A, D)
    absent.leaving.add(B)
    absent.stopped.add(C)
    for node in (A, B, C):
        absent.come_back(node)
    assert absent.excluded == (B, C, D)


def test_a_plan_over_absent_nodes_is_refused_with_the_reason() -> None:
    absent = AbsentNodes()
    assert absent.defect((A, B)) is None
    absent.blamed = (A,)
    assert absent.defect((A, B)) is None
    absent.stopped.add(B)
    assert absent.defect((A, B)) == "the plan counts on stopped nodes: b"
    absent.leaving.add(A)
    assert absent.defect((A, B)) == "the plan counts on leaving nodes: a"
    absent.lost |= {B, A}
    assert absent.defect((A, B)) == "the plan counts on lost nodes: a, b"
