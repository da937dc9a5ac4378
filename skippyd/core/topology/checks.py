"""What is refused before any node is looked at, in the documented order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.topology.plan import (
    ContextBelowMinimum,
    ContextExceedsNative,
    MissingKvBytesPerToken,
    MissingLayers,
    MissingModelWeights,
    MissingNativeContext,
    MissingNodes,
    ParallelLanesExceedSequenceCapacity,
    ZeroParallelLanes,
)
from skippyd.core.topology.request import LANES_MAX


if TYPE_CHECKING:
    from skippyd.core.topology.plan import RequestRefusal
    from skippyd.core.topology.request import ModelShape, PlanRequest


def check_request(request: PlanRequest) -> RequestRefusal | None:
    """First thing wrong with the question itself, None when it can be planned."""
    missing = _missing_fact(request.model)
    if missing is not None:
        return missing
    if not request.nodes:
        return MissingNodes()
    return _bad_override(request)


def _missing_fact(model: ModelShape) -> RequestRefusal | None:
    """The first fact of the model that is absent."""
    if model.native_context <= 0:
        return MissingNativeContext()
    if model.layer_count <= 0:
        return MissingLayers()
    if model.weight_bytes <= 0:
        return MissingModelWeights()
    if model.kv_bytes_per_token <= 0:
        return MissingKvBytesPerToken()
    return None


def _bad_override(request: PlanRequest) -> RequestRefusal | None:
    """A context or a number of lanes that is never offered."""
    model, context = request.model, request.context_override
    if context is not None and context > model.native_context:
        return ContextExceedsNative(context, model.native_context)
    if context is not None and context < model.context_floor:
        return ContextBelowMinimum(context, model.context_floor)
    if request.lanes <= 0:
        return ZeroParallelLanes()
    if request.lanes > LANES_MAX:
        return ParallelLanesExceedSequenceCapacity(request.lanes, LANES_MAX)
    return None
