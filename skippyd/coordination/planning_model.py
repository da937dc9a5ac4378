"""A model as the planner of this node sees it: sizes, outside tensors, offered cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.topology.matrices import OutsideTensors
from skippyd.core.topology.request import ModelShape
from skippyd.errors import RefusedError
from skippyd.model.completeness import block_tensor
from skippyd.model.facts import model_facts
from skippyd.model.gguf_model import open_model
from skippyd.model.refusals import refused_reason
from skippyd.model.slicing import slice_model


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.core.topology.matrices import NamedBytes
    from skippyd.core.topology.plan import StageAssignment
    from skippyd.model.gguf_model import GgufModel

LAYERS_WITH_A_MIDDLE = 3


@attrs.frozen(kw_only=True)
class PlanningModel:
    """An opened model with what planning takes from it.

    Args:
        model: The model; only its header was read.
        shape: The numbers of the planner.
        outside: Tensors that belong to no layer.
        source_bytes: Size of all its files.
    """

    model: GgufModel
    shape: ModelShape
    outside: OutsideTensors
    source_bytes: int


def open_planning_model(path: Path, *, type_k: str, type_v: str) -> PlanningModel:
    """Read the header of a model, split files too; called in a thread.

    Raises:
        ModelError: The file is broken or lacks what is needed.
        RefusedError: Its architecture is not offered, or the cache types do not suit.
    """
    model = open_model(path)
    facts = model_facts(model)
    return PlanningModel(
        model=model,
        shape=ModelShape(
            native_context=facts.context_length,
            layer_count=facts.layer_count,
            weight_bytes=facts.weight_bytes,
            kv_bytes_per_token=facts.kv_bytes_per_token(type_k, type_v),
            layer_weight_bytes=facts.layer_weight_bytes,
        ),
        outside=_outside_tensors(model),
        source_bytes=sum(part.file_bytes for part in model.part_files),
    )


def check_stages(opened: PlanningModel, stages: tuple[StageAssignment, ...]) -> None:
    """Refuse a plan whose stages would not compute what the whole model does.

    Raises:
        RefusedError: With the first such stage and the reason.
    """
    for stage in stages:
        start, end = stage.layer_start, stage.layer_end
        if (reason := refused_reason(opened.model, start, end)) is not None:
            raise RefusedError(
                f"{opened.model.path}: {stage.stage_id} would be layers "
                f"{start}..{end}: {reason}"
            )


def _outside_tensors(model: GgufModel) -> OutsideTensors:
    """Ask the slices themselves, so that plan and loader count alike."""
    count = model.layer_count
    whole = _beside_layers(model, 0, count)
    if count == 1:
        return OutsideTensors(whole=whole, first=whole, middle=(), last=whole)
    has_middle = count >= LAYERS_WITH_A_MIDDLE
    return OutsideTensors(
        whole=whole,
        first=_beside_layers(model, 0, 1),
        middle=_beside_layers(model, 1, 2) if has_middle else (),
        last=_beside_layers(model, count - 1, count),
    )


def _beside_layers(model: GgufModel, start: int, end: int) -> NamedBytes:
    tensors = slice_model(model, start, end).resident_tensors
    return tuple(
        (tensor.name, tensor.nbytes)
        for tensor in tensors
        if block_tensor(tensor.name) is None
    )
