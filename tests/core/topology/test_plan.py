from __future__ import annotations

from skippyd.core.topology.plan import StageAssignment, TopologyPlan
from skippyd.ids import NodeId


def stage(index: int, remaining: int) -> StageAssignment:
    return StageAssignment(
        stage_index=index,
        node_id=NodeId(f"n{index}"),
        layer_start=index,
        layer_end=index + 1,
        parameter_bytes=70,
        kv_bytes=5,
        remaining_bytes=remaining,
    )


def test_a_stage_is_named_by_its_place() -> None:
    assert stage(3, 0).stage_id == "stage-3"


def test_a_stages_bytes_add_up() -> None:
    assert stage(0, 25).needed_bytes == 75
    assert stage(0, 25).usable_bytes == 100
    assert stage(0, -25).usable_bytes == 50


def test_the_smallest_margin_is_the_fullest_stages() -> None:
    stages = (stage(0, 9), stage(1, 4), stage(2, 6))
    plan = TopologyPlan(context_length=1, lanes=1, stages=stages)

    assert plan.smallest_margin_bytes == 4
    assert plan.estimate_us is None
    assert plan.target_met is None
    assert plan.assumed_latency == ()
