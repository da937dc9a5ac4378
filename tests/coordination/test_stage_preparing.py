"""Preparations: found and alike, or refused; a cancelled one says nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from skippyd.coordination.inventory import Inventory
from skippyd.coordination.model_digests import ModelDigests
from skippyd.coordination.stage_parts import StageParts
from skippyd.coordination.stage_preparing import StagePreparing
from skippyd.core.coordinator.messages import PreparationState
from support.stage_nodes import SOME_BUILD, Plan, small_plan


if TYPE_CHECKING:
    from skippyd.core.coordinator.control_effects import PreparationMoved

State = PreparationState


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A small model in two stages."""
    return small_plan(tmp_path_factory.mktemp("models"))


def preparing_of(plan: Plan, moved: list[PreparationMoved]) -> StagePreparing:
    inventory = Inventory((plan.path,), ModelDigests(None))
    parts = StageParts(inventory, lambda: SOME_BUILD)
    return StagePreparing(parts=parts, offer=moved.append)


async def test_a_part_that_is_here_and_alike_is_ready(plan: Plan) -> None:
    moved: list[PreparationMoved] = []
    preparing = preparing_of(plan, moved)
    async with trio.open_nursery() as preparing.nursery:
        preparing.start(plan.load(10, 1), plan.settings(), None)

    assert [(m.state, m.error) for m in moved] == [
        (State.RESOLVING, ""),
        (State.READY, ""),
    ]


async def test_what_is_missing_or_different_fails_with_the_reason(plan: Plan) -> None:
    moved: list[PreparationMoved] = []
    preparing = preparing_of(plan, moved)
    other = attrs.evolve(plan.load(10, 1), admission="{}")
    async with trio.open_nursery() as preparing.nursery:
        preparing.start(other, plan.settings(), None)

    assert moved[-1].state is State.FAILED
    assert "cannot be read" in moved[-1].error


async def test_without_settings_or_while_draining_nothing_begins(plan: Plan) -> None:
    moved: list[PreparationMoved] = []
    preparing = preparing_of(plan, moved)
    async with trio.open_nursery() as preparing.nursery:
        preparing.start(plan.load(10, 1), None, None)
        preparing.start(plan.load(10, 1), plan.settings(), "draining")

    assert [m.error for m in moved] == [
        "the preparation came without its run settings",
        "draining",
    ]


async def test_a_cancelled_one_is_never_heard_of_again(plan: Plan) -> None:
    moved: list[PreparationMoved] = []
    preparing = preparing_of(plan, moved)
    async with (
        trio.open_nursery() as preparing.nursery,
        preparing.parts.inventory._reading,  # a long digest of another file
    ):
        preparing.start(plan.load(10, 1), plan.settings(), None)
        await wait_all_tasks_blocked()
        preparing.cancel(plan.load(10, 1))
        preparing.cancel(plan.load(10, 1))
        await wait_all_tasks_blocked()

    assert [m.state for m in moved] == [State.RESOLVING]
