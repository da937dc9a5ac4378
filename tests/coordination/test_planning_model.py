"""A model as the planner sees it: every tensor is counted once, cuts are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.coordination.planning_model import check_stages, open_planning_model
from skippyd.core.topology.plan import StageAssignment
from skippyd.errors import ModelError, RefusedError
from skippyd.ids import NodeId
from support.random_models import RandomModel, write_random_model


if TYPE_CHECKING:
    from pathlib import Path


def stage(start: int, end: int) -> StageAssignment:
    return StageAssignment(
        stage_index=0,
        node_id=NodeId("a"),
        layer_start=start,
        layer_end=end,
        parameter_bytes=1,
        kv_bytes=1,
        remaining_bytes=0,
    )


def test_shape_and_outside_tensors_add_up(tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "m.gguf", RandomModel(layers=4, tied=False))
    opened = open_planning_model(path, type_k="f16", type_v="f16")
    outside = sum(size for _, size in opened.outside.whole)
    assert opened.shape.layer_count == 4
    assert sum(opened.shape.layer_weight_bytes) + outside == opened.shape.weight_bytes
    assert opened.source_bytes == path.stat().st_size
    # A stage in the middle keeps a few rows for llama.cpp's sake.
    assert sum(size for _, size in opened.outside.middle) < outside / 10


def test_a_tied_embedding_lies_on_both_ends(tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "m.gguf", RandomModel(layers=2))
    outside = open_planning_model(path, type_k="f16", type_v="f16").outside
    assert "token_embd.weight" in dict(outside.first)
    assert "token_embd.weight" in dict(outside.last)


def test_parts_of_a_split_model_are_counted_together(tmp_path: Path) -> None:
    path = write_random_model(
        tmp_path / "m.gguf", RandomModel(layers=2, tensors_per_part=5)
    )
    parts = sum(part.stat().st_size for part in tmp_path.glob("*.gguf"))
    assert open_planning_model(path, type_k="f16", type_v="f16").source_bytes == parts


def test_cuts_are_checked_by_name(tmp_path: Path) -> None:
    path = write_random_model(tmp_path / "m.gguf", RandomModel(layers=4))
    opened = open_planning_model(path, type_k="f16", type_v="f16")
    check_stages(opened, (stage(0, 2),))
    with pytest.raises(RefusedError, match=r"stage-0 would be layers 2\.\.9"):
        check_stages(opened, (stage(2, 9),))


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"nonsense")
    with pytest.raises(ModelError):
        open_planning_model(path, type_k="f16", type_v="f16")
