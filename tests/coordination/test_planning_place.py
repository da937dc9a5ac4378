"""Chains that begin on a given node: as fair as can be, or refused with a direction."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.coordination.planning_place import fair_cuts, plan_from_node
from skippyd.core.topology.fitting import prefix_bytes
from skippyd.core.topology.matrices import OutsideTensors
from skippyd.core.topology.plan import TopologyPlan
from skippyd.core.topology.request import ModelShape, Node, PlanRequest
from skippyd.errors import RefusedError
from skippyd.ids import NodeId


NOTHING = OutsideTensors(whole=(), first=(), middle=(), last=())


def request_of(
    *usable: int, layers: int = 10, latencies_us: tuple[int, ...] = (), **fields: int
) -> PlanRequest:
    """Nodes n0, n1 … with so many bytes; a layer is 10 bytes and 1 a token."""
    return PlanRequest(
        model=ModelShape(
            native_context=1,
            layer_count=layers,
            weight_bytes=layers * 10,
            kv_bytes_per_token=layers,
        ),
        nodes=tuple(
            Node(
                node_id=NodeId(f"n{index}"),
                vram_bytes=size,
                latency_us=latencies_us[index] if latencies_us else None,
            )
            for index, size in enumerate(usable)
        ),
        **fields,
    )


def planned(request: PlanRequest, own: str) -> TopologyPlan:
    plan = plan_from_node(request, NOTHING, NodeId(own))
    assert isinstance(plan, TopologyPlan)
    assert plan.stages[0].node_id == own
    assert plan.smallest_margin_bytes >= 0
    ends = [0, *(stage.layer_end for stage in plan.stages)]
    assert ends[:-1] == [stage.layer_start for stage in plan.stages]
    assert ends[-1] == request.model.layer_count
    return plan


def test_the_planners_own_choice_stands_when_it_begins_here() -> None:
    assert len(planned(request_of(200, 50), "n0").stages) == 1


def test_a_small_node_in_front_takes_what_it_can() -> None:
    plan = planned(request_of(25, 200), "n0")
    assert [(s.layer_start, s.layer_end) for s in plan.stages] == [(0, 1), (1, 10)]


def test_the_fewest_nodes_win() -> None:
    assert len(planned(request_of(60, 60, 90, 60), "n0").stages) == 2


def test_as_many_stages_as_are_asked_for() -> None:
    plan = planned(request_of(500, 500, 500, min_nodes=3), "n2")
    assert [s.node_id for s in plan.stages] == ["n2", "n0", "n1"]


def test_far_nodes_are_left_out() -> None:
    request = request_of(60, 500, 300, latencies_us=(1, 900, 5))
    assert [s.node_id for s in planned(request, "n0").stages] == ["n0", "n2"]


def test_no_chain_from_here_says_where_one_would_begin() -> None:
    with pytest.raises(RefusedError, match="begins on n1 fits: deploy there"):
        plan_from_node(request_of(5, 200), NOTHING, NodeId("n0"))


def test_matrices_at_the_ends_are_counted() -> None:
    outside = OutsideTensors(
        whole=(("token_embd.weight", 40),),
        first=(("token_embd.weight", 40),),
        middle=(),
        last=(("output.weight", 40),),
    )
    plan = plan_from_node(request_of(80, 200, min_nodes=2), outside, NodeId("n0"))
    assert isinstance(plan, TopologyPlan)
    assert plan.stages[0].parameter_bytes >= 50
    assert plan.smallest_margin_bytes >= 0


@pytest.mark.slow
@given(
    own=st.integers(0, 60),
    others=st.lists(st.integers(0, 60), min_size=0, max_size=3),
    weights=st.lists(st.integers(1, 20), min_size=4, max_size=7),
)
def test_no_other_cut_leaves_the_fullest_node_more(
    own: int, others: list[int], weights: list[int]
) -> None:
    usable = [own, *sorted(others, reverse=True)]
    prefix = prefix_bytes(weights, 0)

    def smallest(cuts: tuple[int, ...]) -> int:
        return min(
            size - (prefix[end] - prefix[start])
            for size, start, end in zip(usable, cuts, cuts[1:], strict=False)
        )

    every = [
        (0, *inner, len(weights))
        for inner in combinations(range(1, len(weights)), len(usable) - 1)
    ]
    cuts = fair_cuts(usable, prefix)
    assert cuts in every
    assert smallest(cuts) == max(map(smallest, every))
