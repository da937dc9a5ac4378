from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyctl.gguf_facts import check_cuts, printable, read_model
from skippyd.core.topology.plan import StageAssignment, TopologyPlan
from skippyd.errors import RefusedError
from skippyd.ids import NodeId
from skippyd.model.slicing import slice_model
from support.random_models import RandomModel, write_random_model


if TYPE_CHECKING:
    from pathlib import Path

    from skippyctl.gguf_facts import FileModel


def opened(folder: Path, spec: RandomModel) -> FileModel:
    path = write_random_model(folder / "m.gguf", spec)
    return read_model(path, type_k="f16", type_v="f16")


def stage(index: int, start: int, end: int) -> StageAssignment:
    return StageAssignment(
        stage_index=index,
        node_id=NodeId(f"n{index}"),
        layer_start=start,
        layer_end=end,
        parameter_bytes=1,
        kv_bytes=1,
        remaining_bytes=1,
    )


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("tied", [True, False])
def test_layers_and_the_rest_add_up_to_what_each_slice_holds(
    tmp_path: Path, layers: int, tied: bool
) -> None:
    found = opened(tmp_path, RandomModel(layers=layers, tied=tied, rope_factors=True))
    weights = found.shape.layer_weight_bytes

    for count in range(1, layers + 1):
        edges = [*range(count), layers]
        for index, (start, end) in enumerate(itertools.pairwise(edges)):
            outside = sum(size for _, size in found.outside.on_stage(index, count))
            held = slice_model(found.model, start, end).resident_tensor_bytes
            assert sum(weights[start:end]) + outside == held


def test_facts_are_the_planners(tmp_path: Path) -> None:
    found = opened(tmp_path, RandomModel(layers=5))

    assert found.name == "m"
    assert found.shape.layer_count == 5
    assert found.shape.native_context == 2048
    assert found.shape.kv_bytes_per_token == 5 * 2 * 32 * 2
    assert sum(found.shape.layer_weight_bytes) < found.shape.weight_bytes


def test_a_cut_that_is_not_exact_is_refused(tmp_path: Path) -> None:
    found = opened(tmp_path, RandomModel(layers=4))
    good = TopologyPlan(
        context_length=1, lanes=1, stages=(stage(0, 0, 2), stage(1, 2, 4))
    )
    check_cuts(found, good)

    bad = attrs.evolve(good, stages=(stage(0, 0, 2), stage(1, 2, 5)))
    with pytest.raises(RefusedError, match=r"m\.gguf: stage-1 would be layers 2\.\.5"):
        check_cuts(found, bad)


def test_names_cannot_move_the_cursor() -> None:
    assert printable("a\x1b[31mb\n") == "a?[31mb?"
    assert printable("modèle-1") == "modèle-1"
