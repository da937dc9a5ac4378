"""Majorities and the tally of a round."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.coordinator.quorum import Tally, quorum
from skippyd.ids import ModelId, NodeId


A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


def test_quorum_is_as_documented() -> None:
    """skippy-facts 3.2: 1→1, 2→2, 3→2, 4→3, 5→3."""
    assert [quorum(n) for n in range(1, 6)] == [1, 2, 2, 3, 3]


@given(st.integers(1, 9))
def test_quorum_is_the_least_number_whose_sets_always_meet(planned: int) -> None:
    """The slow obvious version: try every pair of sets."""

    def always_meet(size: int) -> bool:
        sets = [set(chosen) for chosen in combinations(range(planned), size)]
        return all(one & other for one in sets for other in sets)

    assert quorum(planned) == next(n for n in range(1, 10) if always_meet(n))


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=30))
def test_a_tally_counts_the_last_answer_of_each_planned_node(
    answers: list[tuple[int, bool]],
) -> None:
    planned = tuple(NodeId(str(n)) for n in range(5))
    tally = Tally(planned)
    last: dict[NodeId, bool] = {}
    for number, is_accept in answers:
        node_id = NodeId(str(number))
        if is_accept:
            tally.accept(node_id)
        else:
            tally.refuse(node_id, "no")
        if node_id in planned:
            last[node_id] = is_accept

    accepts = sum(last.values())
    assert tally.has_quorum == (accepts * 2 > len(planned))
    assert tally.are_all_accepted == (accepts == len(planned))
    assert tally.is_complete == (len(last) == len(planned))
    assert tally.silent == tuple(n for n in planned if n not in last)
    assert all(tally.has_accepted(n) == last.get(n, False) for n in planned)


def test_a_missed_quorum_names_every_missing_stage() -> None:
    tally = Tally((A, B, C))
    tally.accept(A)
    tally.refuse(B, "stale coordinator term 1 < 2")

    assert tally.failure_text("claim", ModelId("org/model")) == (
        "coordinator claim for org/model accepted by 1/3 planned stage(s), need 2: "
        "b: stale coordinator term 1 < 2; c: no answer"
    )
