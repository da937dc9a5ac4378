"""Every refusal as a sentence for people: what, where, why and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from skippyd.core.topology.plan import (
    ContextBelowMinimum,
    ContextExceedsNative,
    LockedDuplicateNode,
    LockedIncompleteCoverage,
    LockedInvalidRange,
    LockedNonContiguousRange,
    LockedStageCount,
    LockedTopologyDoesNotFit,
    LockedUnknownNode,
    MissingKvBytesPerToken,
    MissingLayers,
    MissingModelWeights,
    MissingNativeContext,
    MissingNodes,
    NoValidTopology,
    ParallelLanesExceedSequenceCapacity,
    TensorDoesNotFit,
    ZeroParallelLanes,
)
from skippyd.units import counted, format_bytes


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.topology.plan import (
        LockedRefusal,
        PlanRefusal,
        RequestRefusal,
        StageAssignment,
    )


NODES_NAMED = 8
"""Nodes a sentence names before it only counts them."""


def refusal_message(refusal: PlanRefusal) -> str:
    """Say what was refused, with the numbers and the nearest thing that works."""
    match refusal:
        case NoValidTopology():
            return _no_valid_topology(refusal)
        case TensorDoesNotFit():
            return _tensor_does_not_fit(refusal)
        case (
            LockedStageCount()
            | LockedUnknownNode()
            | LockedDuplicateNode()
            | LockedInvalidRange()
            | LockedNonContiguousRange()
            | LockedIncompleteCoverage()
            | LockedTopologyDoesNotFit()
        ):
            return _locked_message(refusal)
        case _:
            return _request_message(refusal)


def _request_message(refusal: RequestRefusal) -> str:
    match refusal:
        case MissingNativeContext():
            text = "the model's native context is not known; give native_context"
        case MissingLayers():
            text = "the model's number of layers is not known; give layers"
        case MissingModelWeights():
            text = "the model's weight bytes are not known; give weight_bytes"
        case MissingKvBytesPerToken():
            text = "the size of the KV cache is not known; give kv_bytes_per_token"
        case MissingNodes():
            text = "there are no nodes; give at least one"
        case ZeroParallelLanes():
            text = "0 lanes can serve nobody; ask for at least 1"
        case _:
            text = _limit_message(refusal)
    return text


def _limit_message(
    refusal: ParallelLanesExceedSequenceCapacity
    | ContextBelowMinimum
    | ContextExceedsNative,
) -> str:
    match refusal:
        case ParallelLanesExceedSequenceCapacity(requested, maximum):
            return (
                f"{requested} lanes are more than the {maximum} sequences one stage "
                f"can tell apart; ask for at most {maximum}"
            )
        case ContextBelowMinimum(requested, minimum):
            return (
                f"a context of {requested:,} is below the floor of {minimum:,} tokens; "
                f"ask for {minimum:,} or more"
            )
        case ContextExceedsNative(requested, native):
            return (
                f"a context of {requested:,} is more than the model's native {native:,} "
                f"tokens; ask for {native:,} or less"
            )
        case _:
            assert_never(refusal)


def _locked_message(refusal: LockedRefusal) -> str:
    match refusal:
        case LockedStageCount(count, minimum, maximum):
            text = (
                f"the locked topology has {counted(count, 'stage')}; "
                f"it needs {minimum} to {maximum}"
            )
        case LockedUnknownNode(index, node_id):
            text = f"locked stage-{index} stands on {node_id}, which is not a node"
        case LockedDuplicateNode(index, node_id):
            text = (
                f"locked stage-{index} stands on {node_id}, which has a stage already"
            )
        case LockedInvalidRange(index, start, end):
            text = f"locked stage-{index} has the range {start}..{end}, which is none"
        case LockedNonContiguousRange(index, expected, start):
            text = f"locked stage-{index} begins at layer {start} instead of {expected}"
        case LockedIncompleteCoverage(end, layer_count):
            text = f"the locked stages end at layer {end} of {layer_count}"
        case LockedTopologyDoesNotFit():
            text = (
                f"the locked topology does not fit a context of "
                f"{refusal.context_length:,} tokens: "
                f"{_shortfalls(refusal.shortfalls, refusal.missing_bytes)}"
            )
        case _:
            assert_never(refusal)
    return text


def _no_valid_topology(refusal: NoValidTopology) -> str:
    if not refusal.nearest:
        return (
            f"no topology is possible: {counted(refusal.min_nodes, 'stage')} asked for, "
            f"with {counted(refusal.node_count, 'node')} and "
            f"{counted(refusal.layer_count, 'layer')}; "
            f"lower min_nodes or add nodes"
        )
    return (
        f"the model does not fit a context of {refusal.context_length:,} tokens: "
        f"{_shortfalls(refusal.shortfalls, refusal.missing_bytes)}; {_remedy(refusal)}"
    )


def _tensor_does_not_fit(refusal: TensorDoesNotFit) -> str:
    stage = refusal.stage
    return (
        f"{refusal.tensor} ({format_bytes(refusal.tensor_bytes)}) does not fit beside "
        f"layers {stage.layer_start}..{stage.layer_end} on {stage.node_id} at a "
        f"context of {refusal.context_length:,} tokens: "
        f"{format_bytes(refusal.missing_bytes, is_need=True)} missing; {_remedy(refusal)}"
    )


def _shortfalls(stages: Sequence[StageAssignment], missing_bytes: int) -> str:
    named = [
        f"{stage.node_id} needs {format_bytes(stage.needed_bytes, is_need=True)} for layers "
        f"{stage.layer_start}..{stage.layer_end} and has "
        f"{format_bytes(stage.usable_bytes)}"
        for stage in stages[:NODES_NAMED]
    ]
    if len(stages) > NODES_NAMED:
        named.append(f"and {len(stages) - NODES_NAMED} more nodes are short")
    return f"{format_bytes(missing_bytes, is_need=True)} missing ({', '.join(named)})"


def _remedy(refusal: NoValidTopology | TensorDoesNotFit) -> str:
    """The nearest things that would fit."""
    ways: list[str] = []
    if refusal.one_more_node_bytes is not None:
        ways.append(
            "add a node with "
            f"{format_bytes(refusal.one_more_node_bytes, is_need=True)} usable"
        )
    if refusal.largest_context == 0:
        ways.append(
            "a smaller context does not help: "
            "the layers do not fit even without a KV cache"
        )
    elif refusal.largest_context >= refusal.minimum_context:
        ways.append(f"ask for a context of at most {refusal.largest_context:,} tokens")
    else:
        ways.append(
            f"these nodes would hold {refusal.largest_context:,} tokens, below the floor"
            f" of {refusal.minimum_context:,}"
        )
    return "; ".join(ways)
