from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.core.topology.locked import LockedStage, plan_locked
from skippyd.core.topology.plan import (
    LockedDuplicateNode,
    LockedIncompleteCoverage,
    LockedInvalidRange,
    LockedNonContiguousRange,
    LockedRefusal,
    LockedStageCount,
    LockedTopologyDoesNotFit,
    LockedUnknownNode,
    TopologyPlan,
    ZeroParallelLanes,
)
from skippyd.ids import NodeId
from skippyd.units import GIB
from support.topologies import ask, base_model, gib_nodes, ranges


if TYPE_CHECKING:
    from skippyd.core.topology.request import PlanRequest


NODES = gib_nodes(small=24, large=48)
LAYER_64K = 1_181_155_328


def request(native: int = 65_536, *, lanes: int | None = None) -> PlanRequest:
    return ask(base_model(native), NODES, min_nodes=2, lanes=lanes)


def locked(*stages: tuple[str, int, int]) -> list[LockedStage]:
    return [
        LockedStage(node_id=NodeId(name), layer_start=start, layer_end=end)
        for name, start, end in stages
    ]


def test_a_locked_topology_is_taken_as_it_stands() -> None:
    """skippy-facts 4.5: the smaller node first, as the operator wrote it."""
    plan = plan_locked(request(), locked(("small", 0, 12), ("large", 12, 40)))

    assert ranges(plan) == [("small", 0, 12), ("large", 12, 40)]
    assert isinstance(plan, TopologyPlan)
    assert (plan.context_length, plan.lanes) == (65_536, 4)
    assert plan.stages[0].remaining_bytes == 24 * GIB - 12 * LAYER_64K


def test_a_locked_topology_gets_the_largest_context_that_fits() -> None:
    plan = plan_locked(request(262_144), locked(("small", 0, 12), ("large", 12, 40)))
    assert isinstance(plan, TopologyPlan)
    assert plan.context_length == 262_144

    fuller = plan_locked(request(262_144), locked(("small", 0, 19), ("large", 19, 40)))
    assert isinstance(fuller, TopologyPlan)
    assert fuller.context_length == 131_072


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ([("large", 0, 40)], LockedStageCount(1, 2, 40)),
        ([], LockedStageCount(0, 2, 40)),
        ([("large", 0, 40)] * 41, LockedStageCount(41, 2, 40)),
        (
            [("small", 0, 12), ("other", 12, 40)],
            LockedUnknownNode(1, NodeId("other")),
        ),
        (
            [("small", 0, 12), ("small", 12, 40)],
            LockedDuplicateNode(1, NodeId("small")),
        ),
        ([("small", 20, 20), ("large", 20, 40)], LockedInvalidRange(0, 20, 20)),
        ([("small", -1, 20), ("large", 20, 40)], LockedInvalidRange(0, -1, 20)),
        ([("small", 0, 20), ("large", 20, 41)], LockedInvalidRange(1, 20, 41)),
        ([("small", 20, 19), ("large", 20, 40)], LockedInvalidRange(0, 20, 19)),
        ([("small", 0, 19), ("large", 20, 40)], LockedNonContiguousRange(1, 19, 20)),
        ([("small", 1, 20), ("large", 20, 40)], LockedNonContiguousRange(0, 0, 1)),
        ([("small", 0, 20), ("large", 19, 40)], LockedNonContiguousRange(1, 20, 19)),
        ([("small", 0, 20), ("large", 20, 39)], LockedIncompleteCoverage(39, 40)),
    ],
)
def test_what_is_wrong_with_a_locked_list_is_named(
    stages: list[tuple[str, int, int]], expected: LockedRefusal
) -> None:
    assert plan_locked(request(), locked(*stages)) == expected


def test_a_locked_stage_that_does_not_fit_says_how_much_is_missing() -> None:
    refusal = plan_locked(request(262_144), locked(("small", 0, 30), ("large", 30, 40)))

    assert isinstance(refusal, LockedTopologyDoesNotFit)
    assert refusal.context_length == 65_536
    assert [stage.node_id for stage in refusal.shortfalls] == ["small"]
    assert refusal.missing_bytes == 30 * LAYER_64K - 24 * GIB


def test_a_locked_stage_may_fill_its_node_to_the_last_byte() -> None:
    exact = tuple(attrs.evolve(node, vram_bytes=20 * LAYER_64K) for node in NODES)
    asked = attrs.evolve(request(), nodes=exact)
    stages = locked(("small", 0, 20), ("large", 20, 40))
    plan = plan_locked(asked, stages)
    scant = attrs.evolve(
        asked, nodes=(attrs.evolve(exact[0], vram_bytes=20 * LAYER_64K - 1), exact[1])
    )

    assert isinstance(plan, TopologyPlan)
    assert plan.smallest_margin_bytes == 0
    refusal = plan_locked(scant, stages)
    assert isinstance(refusal, LockedTopologyDoesNotFit)
    assert refusal.missing_bytes == 1
    assert len(refusal.shortfalls) == 1


def test_as_many_locked_stages_as_layers_are_allowed() -> None:
    model = attrs.evolve(base_model(), layer_count=2)
    stages = locked(("small", 0, 1), ("large", 1, 2))
    assert isinstance(plan_locked(ask(model, NODES), stages), TopologyPlan)


def test_a_bad_question_is_refused_before_the_list_is_read() -> None:
    assert plan_locked(request(lanes=0), []) == ZeroParallelLanes()
