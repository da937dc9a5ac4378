"""What hangs is told at once, and is a reason to be restarted after a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.coordination.stage_run import StageRun
from skippyd.core.coordinator.messages import Origin
from skippyd.daemon.clock import read_instant
from skippyd.daemon.node_health import (
    HUNG_MS,
    SILENT_MS,
    NodeUnwellError,
    Trouble,
    check_node,
    troubles,
)
from skippyd.stage.activity import LaneActivity, StageActivity
from support.stage_nodes import fake_child, small_plan, stage_node


if TYPE_CHECKING:
    from pathlib import Path

    from support.stage_nodes import Plan

NOW_MS = 1_000_000


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A small model in two stages."""
    return small_plan(tmp_path_factory.mktemp("models"))


def a_run(plan: Plan) -> StageRun:
    """A stage that runs and says nothing."""
    return StageRun(
        load=plan.load(10, 1),
        settings=plan.settings(),
        origin=Origin.NETWORK,
        host="127.0.0.1",
        since_unix_ms=0,
        child=fake_child(),
    )


def test_a_stage_that_answers_is_no_trouble(plan: Plan) -> None:
    run = a_run(plan)
    run.activity = StageActivity(lanes=(LaneActivity(lane_id=0, state="decode"),))
    assert list(troubles([run], NOW_MS)) == []
    run.asked_ms = NOW_MS - SILENT_MS
    assert list(troubles([run], NOW_MS)) == []


@pytest.mark.parametrize(
    ("silent_ms", "is_hopeless"), [(12_000, False), (61_000, True)]
)
def test_a_silent_stage_is_told_first_and_given_up_later(
    plan: Plan, silent_ms: int, is_hopeless: bool
) -> None:
    run = a_run(plan)
    run.asked_ms = NOW_MS - silent_ms
    text = f"stage-1 (pid 1000) has been silent for {silent_ms // 1000} s"
    assert list(troubles([run], NOW_MS)) == [Trouble(text, is_hopeless)]
    run.is_ending = True
    assert list(troubles([run], NOW_MS)) == []


def test_an_overdue_lane_is_given_up_at_once(plan: Plan) -> None:
    run = a_run(plan)
    late = LaneActivity(lane_id=2, state="decode", working_ms=130_000, is_overdue=True)
    run.activity = StageActivity(lanes=(late,))
    (found,) = troubles([run], NOW_MS)
    assert found.text == "lane 2 of stage-1 is overdue: 130 s at one message"
    assert found.is_hopeless
    run.child = None
    assert list(troubles([run], NOW_MS)) == []


@pytest.mark.slow
async def test_a_node_is_well_until_a_stage_hangs(tmp_path: Path, plan: Plan) -> None:
    async with stage_node(tmp_path, plan) as node:
        await node.serve(10)
        await check_node(node.stages)
        (run,) = node.stages.stage_runs()
        run.asked_ms = read_instant().boottime_ms - 2 * HUNG_MS
        with pytest.raises(NodeUnwellError, match=r"stage-1 .* has been silent"):
            await check_node(node.stages)
