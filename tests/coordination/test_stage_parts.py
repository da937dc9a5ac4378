"""A stage's part: found by content, opened, and described from what was opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.coordination.admission import descriptor_text
from skippyd.coordination.inventory import Inventory
from skippyd.coordination.model_digests import ModelDigests
from skippyd.coordination.stage_parts import StageParts
from skippyd.errors import RefusedError
from skippyd.model.gguf_model import open_model
from support.stage_nodes import SOME_BUILD, Plan, small_plan


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.runtime.build import BuildFacts


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A small model in two stages."""
    return small_plan(tmp_path_factory.mktemp("models"))


def parts_of(*folders: Path) -> StageParts:
    return StageParts(Inventory(folders, ModelDigests(None)), lambda: SOME_BUILD)


async def test_a_part_is_what_a_coordinator_would_say_it_is(plan: Plan) -> None:
    part = await parts_of(plan.path.parent).open(plan.load(10, 1), plan.settings())

    assert part.path == plan.path
    assert part.source_bytes == plan.path.stat().st_size
    assert 0 < part.tensor_bytes < part.source_bytes
    assert descriptor_text(part.descriptor) == plan.load(10, 1).admission


async def test_what_computes_here_is_asked_once(plan: Plan) -> None:
    asked: list[None] = []

    def build() -> BuildFacts:
        asked.append(None)
        return SOME_BUILD

    parts = StageParts(Inventory((plan.path,), ModelDigests(None)), build)
    for index in (0, 1):
        await parts.open(plan.load(10, index), plan.settings())

    assert len(asked) == 1


async def test_what_is_not_here_is_named_with_layers_model_and_size(
    plan: Plan, tmp_path: Path
) -> None:
    with pytest.raises(RefusedError) as missing:
        await parts_of(tmp_path).open(plan.load(10, 1), plan.settings())

    size = plan.path.stat().st_size
    assert f"layers 3 to 6 of org/model (a model of {size} bytes)" in str(missing.value)


async def test_a_file_replaced_after_it_was_identified_is_refused(
    tmp_path: Path,
) -> None:
    plan = small_plan(tmp_path / "models")
    parts = parts_of(plan.path.parent)
    await parts.open(plan.load(10, 1), plan.settings())
    digests = parts.inventory.digests
    plan.path.write_bytes(plan.path.read_bytes())
    assert digests.get(open_model(plan.path).part_files) is None

    with pytest.raises(RefusedError, match="was replaced meanwhile"):
        await parts.open(plan.load(10, 1), plan.settings())


async def test_layers_that_are_not_there_are_refused(plan: Plan) -> None:
    stages = (
        plan.settings().stages[0],
        attrs.evolve(plan.settings().stages[1], layer_end=9),
    )
    settings = attrs.evolve(plan.settings(), stages=stages)
    load = attrs.evolve(plan.load(10, 1), layer_end=9)

    with pytest.raises(RefusedError, match="9"):
        await parts_of(plan.path.parent).open(load, settings)
