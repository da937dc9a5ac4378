"""Plans whose nodes and ranges an operator has fixed: checked, never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.topology.checks import check_request
from skippyd.core.topology.plan import (
    LockedDuplicateNode,
    LockedIncompleteCoverage,
    LockedInvalidRange,
    LockedNonContiguousRange,
    LockedStageCount,
    LockedTopologyDoesNotFit,
    LockedUnknownNode,
)
from skippyd.core.topology.stages import assign, finish


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.topology.plan import LockedRefusal, PlanRefusal, TopologyPlan
    from skippyd.core.topology.request import PlanRequest
    from skippyd.ids import NodeId


@attrs.frozen(kw_only=True)
class LockedStage:
    """One fixed stage: half-open layer range and its node."""

    node_id: NodeId
    layer_start: int
    layer_end: int


def plan_locked(
    request: PlanRequest, locked: Sequence[LockedStage]
) -> TopologyPlan | PlanRefusal:
    """Take the stages as they stand, in their order, at the largest context.

    Latencies and the target are reported, they choose nothing here.
    """
    refusal = check_request(request) or _check_locked(request, locked)
    if refusal is not None:
        return refusal
    known = {node.node_id: node for node in request.nodes}
    nodes = [known[stage.node_id] for stage in locked]
    cuts = [0, *(stage.layer_end for stage in locked)]
    contexts = request.contexts()
    for context in contexts:
        stages = assign(nodes, cuts, request.model, context)
        if all(stage.remaining_bytes >= 0 for stage in stages):
            return finish(request, context, stages)
    return LockedTopologyDoesNotFit(
        contexts[-1], assign(nodes, cuts, request.model, contexts[-1])
    )


def _check_locked(
    request: PlanRequest, locked: Sequence[LockedStage]
) -> LockedRefusal | None:
    """The first thing wrong with the list, before memory is looked at."""
    layer_count = request.model.layer_count
    if not request.stages_min <= len(locked) <= layer_count:
        return LockedStageCount(len(locked), request.stages_min, layer_count)
    return (
        _check_nodes(request, locked)
        or _check_ranges(locked, layer_count)
        or _check_coverage(locked, layer_count)
    )


def _check_nodes(
    request: PlanRequest, locked: Sequence[LockedStage]
) -> LockedRefusal | None:
    """Every stage on a known node of its own."""
    known = {node.node_id for node in request.nodes}
    taken: set[NodeId] = set()
    for index, stage in enumerate(locked):
        if stage.node_id not in known:
            return LockedUnknownNode(index, stage.node_id)
        if stage.node_id in taken:
            return LockedDuplicateNode(index, stage.node_id)
        taken.add(stage.node_id)
    return None


def _check_ranges(
    locked: Sequence[LockedStage], layer_count: int
) -> LockedRefusal | None:
    """Every range holds a layer of the model."""
    for index, stage in enumerate(locked):
        if not 0 <= stage.layer_start < stage.layer_end <= layer_count:
            return LockedInvalidRange(index, stage.layer_start, stage.layer_end)
    return None


def _check_coverage(
    locked: Sequence[LockedStage], layer_count: int
) -> LockedRefusal | None:
    """The ranges follow each other from the first layer to the last."""
    position = 0
    for index, stage in enumerate(locked):
        if stage.layer_start != position:
            return LockedNonContiguousRange(index, position, stage.layer_start)
        position = stage.layer_end
    if position != layer_count:
        return LockedIncompleteCoverage(position, layer_count)
    return None
