from __future__ import annotations

from itertools import pairwise

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.topology.plan import TopologyPlan
from skippyd.core.topology.planner import plan_topology
from skippyd.core.topology.request import ModelShape, Node, PlanRequest
from skippyd.ids import NodeId
from skippyd.units import GIB
from support.topologies import (
    QWEN_480B,
    ask,
    base_model,
    equal_nodes,
    gib_nodes,
    planned,
    ranges,
    uneven_model,
    unplannable,
)


def with_latency(nodes: tuple[Node, ...], **latency_us: int | None) -> tuple[Node, ...]:
    return tuple(
        attrs.evolve(node, latency_us=latency_us[node.node_id]) for node in nodes
    )


class TestPublishedOutcomes:
    """Context, stage count and lanes of the seed's list; ranges are ours."""

    def test_four_nodes_of_70_gib_cannot_hold_480b(self) -> None:
        refusal = unplannable(ask(QWEN_480B, equal_nodes(4, 70)))
        assert refusal.minimum_context == 65_536

    def test_four_nodes_of_80_gib_hold_64k(self) -> None:
        plan = planned(ask(QWEN_480B, equal_nodes(4, 80)))
        assert (plan.context_length, len(plan.stages), plan.lanes) == (65_536, 4, 4)

    def test_five_nodes_of_80_gib_hold_the_native_context(self) -> None:
        plan = planned(ask(QWEN_480B, equal_nodes(5, 80)))

        assert (plan.context_length, len(plan.stages), plan.lanes) == (262_144, 5, 4)
        assert [s.layer_end - s.layer_start for s in plan.stages] == [
            13,
            13,
            12,
            12,
            12,
        ]

    @pytest.mark.parametrize(
        "nodes",
        [
            equal_nodes(10, 80),
            equal_nodes(7, 80) + gib_nodes(t0=1, t1=1, t2=1),
        ],
    )
    def test_more_nodes_are_not_used_once_five_are_enough(
        self, nodes: tuple[Node, ...]
    ) -> None:
        plan = planned(ask(QWEN_480B, nodes))

        assert (plan.context_length, len(plan.stages), plan.lanes) == (262_144, 5, 4)
        assert [s.node_id for s in plan.stages] == ["n0", "n1", "n2", "n3", "n4"]

    @pytest.mark.parametrize(
        "small",
        [
            Node(node_id=NodeId("small"), vram_bytes=64 * GIB),
            Node(
                node_id=NodeId("small"),
                vram_bytes=120 * GIB,
                max_vram_bytes=80 * GIB,
                headroom_bytes=16 * GIB,
            ),
        ],
    )
    def test_a_smaller_or_capped_node_is_last_with_fewer_layers(
        self, small: Node
    ) -> None:
        plan = planned(ask(QWEN_480B, (small, *equal_nodes(4, 80))))

        assert (plan.context_length, len(plan.stages), plan.lanes) == (262_144, 5, 4)
        counts = [s.layer_end - s.layer_start for s in plan.stages]
        assert plan.stages[-1].node_id == "small"
        assert counts[-1] < min(counts[:-1])

    def test_studios_share_by_what_they_have(self) -> None:
        nodes = (
            Node(node_id=NodeId("s"), vram_bytes=115_448_725_504),
            Node(node_id=NodeId("l"), vram_bytes=239_143_780_352),
        )
        plan = planned(ask(QWEN_480B, nodes))

        assert plan.context_length == 262_144
        assert ranges(plan) == [("l", 0, 42), ("s", 42, 62)]

    def test_base_on_two_nodes_of_23_gib(self) -> None:
        plan = planned(ask(base_model(), gib_nodes(a=23, b=23)))

        assert (plan.context_length, plan.lanes) == (65_536, 4)
        assert ranges(plan) == [("a", 0, 20), ("b", 20, 40)]
        assert plan.estimate_us is None
        assert plan.target_met is None

    def test_base_on_one_of_six_large_nodes(self) -> None:
        assert ranges(planned(ask(base_model(), equal_nodes(6, 80)))) == [("n0", 0, 40)]

    def test_base_does_not_fit_two_nodes_of_8_gib(self) -> None:
        refusal = unplannable(ask(base_model(), gib_nodes(a=8, b=8)))
        assert refusal.minimum_context == 65_536

    def test_the_estimate_decides_over_the_context(self) -> None:
        nodes = tuple(attrs.evolve(n, latency_us=10_000) for n in equal_nodes(4, 23))
        plan = planned(ask(base_model(262_144), nodes, min_nodes=2, target_us=33_000))

        assert plan.context_length == 65_536
        assert ranges(plan) == [("n0", 0, 20), ("n1", 20, 40)]
        assert plan.estimate_us == 20_000
        assert plan.target_met is True

    def test_a_missed_target_still_gives_the_best_plan(self) -> None:
        nodes = tuple(attrs.evolve(n, latency_us=10_000) for n in equal_nodes(4, 80))
        plan = planned(ask(QWEN_480B, nodes, target_us=33_000))

        assert len(plan.stages) == 4
        assert plan.estimate_us == 40_000
        assert plan.target_met is False

    @pytest.mark.parametrize(
        ("weights", "sizes", "expected"),
        [
            ((0.125, 0.125, 9, 8), (12, 9), [("l", 0, 3), ("s", 3, 4)]),
            ((9, 1, 1, 1), (11, 3), [("l", 0, 2), ("s", 2, 4)]),
        ],
    )
    def test_uneven_layers_are_cut_where_they_fit(
        self,
        weights: tuple[float, ...],
        sizes: tuple[int, int],
        expected: list[tuple[str, int, int]],
    ) -> None:
        nodes = gib_nodes(s=sizes[1], l=sizes[0])
        assert ranges(planned(ask(uneven_model(*weights), nodes))) == expected


def test_parameter_kv_and_margin_add_up_to_the_node() -> None:
    plan = planned(ask(QWEN_480B, equal_nodes(5, 80)))
    first = plan.stages[0]

    assert first.stage_id == "stage-0"
    assert first.parameter_bytes == 13 * 5_091_612_904
    assert first.kv_bytes == 13 * 2115 * 262_144
    assert first.remaining_bytes == 80 * GIB - 13 * 5_646_047_464
    assert first.usable_bytes == 80 * GIB
    assert plan.smallest_margin_bytes == first.remaining_bytes
    assert [s.stage_index for s in plan.stages] == [0, 1, 2, 3, 4]
    assert plan.stages[4].stage_id == "stage-4"


def test_a_target_without_latencies_changes_nothing_and_is_not_judged() -> None:
    nodes = equal_nodes(6, 80)
    with_target = planned(ask(base_model(), nodes, target_us=1))

    assert planned(ask(base_model(), nodes)) == with_target
    assert with_target.target_met is None


def test_an_unknown_latency_counts_as_the_largest_known() -> None:
    nodes = with_latency(gib_nodes(a=50, b=48, c=46), a=None, b=5_000, c=30_000)

    near = planned(ask(base_model(), nodes))
    two = planned(ask(base_model(), nodes, min_nodes=2))

    assert ranges(near) == [("b", 0, 40)]
    assert near.estimate_us == 5_000
    assert near.assumed_latency == ()
    assert [s.node_id for s in two.stages] == ["a", "b"]
    assert two.estimate_us == 60_000
    assert two.assumed_latency == ("a",)


def test_more_nodes_win_when_they_cost_the_same_and_leave_more() -> None:
    """2 x 20 ms equals 4 x 10 ms; the priorities then ask for the margin."""
    nodes = with_latency(
        gib_nodes(a=23, b=23, c=13, d=13, e=13, f=13),
        a=20_000, b=20_000, c=10_000, d=10_000, e=10_000, f=10_000,
    )  # fmt: skip
    plan = planned(ask(base_model(), nodes, min_nodes=2))

    assert plan.estimate_us == 40_000
    assert [s.node_id for s in plan.stages] == ["c", "d", "e", "f"]


def test_no_latency_at_all_between_nodes_spreads_for_margin() -> None:
    nodes = tuple(attrs.evolve(n, latency_us=0) for n in equal_nodes(4, 80))
    plan = planned(ask(base_model(), nodes))

    assert plan.estimate_us == 0
    assert len(plan.stages) == 4


def test_equal_nodes_are_taken_in_the_order_of_their_ids() -> None:
    nodes = gib_nodes(c=23, a=23, b=23)
    assert [s.node_id for s in planned(ask(base_model(), nodes)).stages] == ["a", "b"]


@pytest.mark.parametrize(("min_nodes", "stages"), [(1, 1), (2, 2), (6, 6)])
def test_min_nodes_are_used(min_nodes: int, stages: int) -> None:
    plan = planned(ask(base_model(), equal_nodes(6, 80), min_nodes=min_nodes))
    assert len(plan.stages) == stages


def test_a_tiny_node_is_not_given_a_layer_it_cannot_hold() -> None:
    """Two nodes fit; three would need the tiny one."""
    nodes = gib_nodes(a=30, b=30, tiny=0.5)
    plan = planned(ask(base_model(), nodes, min_nodes=2))
    assert [s.node_id for s in plan.stages] == ["a", "b"]

    unplannable(ask(base_model(), nodes, min_nodes=3))


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    """Questions of every kind, many of them without an answer."""
    count = draw(st.integers(1, 12))
    weights = draw(
        st.one_of(
            st.just(()),
            st.lists(st.integers(1, 9), min_size=count, max_size=count).map(
                lambda sizes: tuple(size * GIB for size in sizes)
            ),
        )
    )
    model = ModelShape(
        native_context=draw(st.integers(1, 300_000)),
        layer_count=count,
        weight_bytes=draw(st.integers(1, 60)) * GIB,
        kv_bytes_per_token=draw(st.integers(1, 200_000)),
        layer_weight_bytes=weights,
    )
    nodes = tuple(
        Node(
            node_id=NodeId(f"n{index}"),
            vram_bytes=draw(st.integers(0, 40)) * GIB,
            latency_us=draw(st.none() | st.integers(0, 3)),
        )
        for index in range(draw(st.integers(1, 8)))
    )
    return PlanRequest(model=model, nodes=nodes, min_nodes=draw(st.integers(0, 4)))


@given(request=requests())
def test_ranges_are_contiguous_cover_all_layers_and_fit(request: PlanRequest) -> None:
    plan = plan_topology(request)
    if not isinstance(plan, TopologyPlan):
        return
    ends = [0, *(stage.layer_end for stage in plan.stages)]

    assert [stage.layer_start for stage in plan.stages] == ends[:-1]
    assert ends[-1] == request.model.layer_count
    assert all(start < end for start, end in pairwise(ends))
    assert plan.smallest_margin_bytes >= 0
    assert len({stage.node_id for stage in plan.stages}) == len(plan.stages)
    assert len(plan.stages) >= request.min_nodes
    usable = [stage.usable_bytes for stage in plan.stages]
    assert usable == sorted(usable, reverse=True)


@given(request=requests(), order=st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_nodes(
    request: PlanRequest, order: object
) -> None:
    assert hasattr(order, "sample")
    nodes = tuple(order.sample(request.nodes, len(request.nodes)))
    assert plan_topology(request) == plan_topology(attrs.evolve(request, nodes=nodes))


@given(request=requests(), more=st.integers(1, 8))
def test_more_memory_never_lowers_the_context_without_latencies(
    request: PlanRequest, more: int
) -> None:
    plain = tuple(attrs.evolve(node, latency_us=None) for node in request.nodes)
    grown = attrs.evolve(plain[0], vram_bytes=plain[0].vram_bytes + more * GIB)
    before = plan_topology(attrs.evolve(request, nodes=plain))
    after = plan_topology(attrs.evolve(request, nodes=(grown, *plain[1:])))

    if isinstance(before, TopologyPlan):
        assert isinstance(after, TopologyPlan)
        assert after.context_length >= before.context_length
