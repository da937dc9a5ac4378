"""What the planner answers: a plan, or a refusal that carries its numbers."""

from __future__ import annotations

import attrs

from skippyd.ids import NodeId, StageId


@attrs.frozen(kw_only=True)
class StageAssignment:
    """One stage: half-open layer range, its node and the node's memory.

    `remaining_bytes` is negative in a shortfall, never in a plan.
    """

    stage_index: int
    node_id: NodeId
    layer_start: int
    layer_end: int
    parameter_bytes: int
    kv_bytes: int
    remaining_bytes: int

    @property
    def stage_id(self) -> StageId:
        """The stage's name in configurations: `stage-0`, `stage-1` and so on."""
        return StageId(f"stage-{self.stage_index}")

    @property
    def needed_bytes(self) -> int:
        """Weights and KV cache together."""
        return self.parameter_bytes + self.kv_bytes

    @property
    def usable_bytes(self) -> int:
        """What the node may use, whether the stage fits or not."""
        return self.needed_bytes + self.remaining_bytes


@attrs.frozen(kw_only=True)
class TopologyPlan:
    """A chain of stages that fits.

    Args:
        context_length: Tokens of KV cache every stage holds.
        lanes: Parallel lanes sharing that cache.
        stages: In chain order.
        estimate_us: Network share of one output token in microseconds; None
            when no node has a latency.
        target_met: None when there is no target or no estimate.
        assumed_latency: Chosen nodes without a latency of their own, counted
            with the largest one known.
    """

    context_length: int
    lanes: int
    stages: tuple[StageAssignment, ...]
    estimate_us: int | None = None
    target_met: bool | None = None
    assumed_latency: tuple[NodeId, ...] = ()

    @property
    def smallest_margin_bytes(self) -> int:
        """Memory left on the fullest node."""
        return min(stage.remaining_bytes for stage in self.stages)


@attrs.frozen
class MissingNativeContext:
    """The model's native context is not known."""


@attrs.frozen
class MissingLayers:
    """The model's layer count is not known."""


@attrs.frozen
class MissingModelWeights:
    """The model's weight bytes are not known."""


@attrs.frozen
class MissingKvBytesPerToken:
    """The KV cache's size is not known."""


@attrs.frozen
class MissingNodes:
    """There is nothing to place layers on."""


@attrs.frozen
class ZeroParallelLanes:
    """Zero lanes were asked for."""


@attrs.frozen
class ParallelLanesExceedSequenceCapacity:
    """More lanes were asked for than one llama.cpp context has sequences."""

    requested: int
    maximum: int


@attrs.frozen
class ContextBelowMinimum:
    """The context asked for is under the floor."""

    requested: int
    minimum: int


@attrs.frozen
class ContextExceedsNative:
    """The context asked for is more than the model was trained for."""

    requested: int
    native: int


@attrs.frozen(kw_only=True)
class NoValidTopology:
    """No node set holds the layers at any context that may be offered.

    Args:
        minimum_context: The floor below which nothing is offered.
        context_length: The smallest context tried; the numbers are for it.
        min_nodes: Fewest stages asked for.
        layer_count: Most stages possible.
        node_count: Nodes given.
        nearest: The arrangement that comes closest; stages with negative
            `remaining_bytes` are the ones that miss memory. Empty when the
            count of stages is impossible whatever the memory.
        largest_context: Most tokens these nodes would hold, in steps of 256;
            0 when the weights alone do not fit.
        one_more_node_bytes: Usable memory of one further node with which the
            model fits; None when one is not enough.
    """

    minimum_context: int
    context_length: int
    min_nodes: int
    layer_count: int
    node_count: int
    nearest: tuple[StageAssignment, ...] = ()
    largest_context: int = 0
    one_more_node_bytes: int | None = None

    @property
    def shortfalls(self) -> tuple[StageAssignment, ...]:
        """The stages of the nearest arrangement that do not fit."""
        return tuple(stage for stage in self.nearest if stage.remaining_bytes < 0)

    @property
    def missing_bytes(self) -> int:
        """Memory missing over all nodes of the nearest arrangement."""
        return -sum(stage.remaining_bytes for stage in self.shortfalls)


@attrs.frozen(kw_only=True)
class TensorDoesNotFit:
    """The layers fit, a matrix outside them does not.

    Args:
        tensor: Name of the matrix in the model's file.
        tensor_bytes: Its size.
        stage: The stage that has to hold it, with the real bytes.
        context_length: The context this was tried at.
        minimum_context: The floor below which nothing is offered.
        largest_context: As in `NoValidTopology`, matrices counted.
        one_more_node_bytes: As in `NoValidTopology`, matrices counted.
    """

    tensor: str
    tensor_bytes: int
    stage: StageAssignment
    context_length: int
    minimum_context: int
    largest_context: int = 0
    one_more_node_bytes: int | None = None

    @property
    def missing_bytes(self) -> int:
        """Memory missing on the stage's node."""
        return -self.stage.remaining_bytes


@attrs.frozen
class LockedStageCount:
    """The locked list has fewer stages than asked for, or more than layers."""

    stage_count: int
    minimum: int
    maximum: int


@attrs.frozen
class LockedUnknownNode:
    """A locked stage stands on a node that was not given."""

    stage_index: int
    node_id: NodeId


@attrs.frozen
class LockedDuplicateNode:
    """A node carries two locked stages."""

    stage_index: int
    node_id: NodeId


@attrs.frozen
class LockedInvalidRange:
    """A locked stage holds no layer, or layers the model does not have."""

    stage_index: int
    layer_start: int
    layer_end: int


@attrs.frozen
class LockedNonContiguousRange:
    """A locked stage does not begin where the one before it ends."""

    stage_index: int
    expected_start: int
    layer_start: int


@attrs.frozen
class LockedIncompleteCoverage:
    """The locked stages end before the model does."""

    layer_end: int
    layer_count: int


@attrs.frozen
class LockedTopologyDoesNotFit:
    """A locked stage needs more memory than its node has."""

    context_length: int
    nearest: tuple[StageAssignment, ...]

    @property
    def shortfalls(self) -> tuple[StageAssignment, ...]:
        """The locked stages that do not fit."""
        return tuple(stage for stage in self.nearest if stage.remaining_bytes < 0)

    @property
    def missing_bytes(self) -> int:
        """Memory missing over all nodes."""
        return -sum(stage.remaining_bytes for stage in self.shortfalls)


RequestRefusal = (
    MissingNativeContext
    | MissingLayers
    | MissingModelWeights
    | MissingKvBytesPerToken
    | MissingNodes
    | ZeroParallelLanes
    | ParallelLanesExceedSequenceCapacity
    | ContextBelowMinimum
    | ContextExceedsNative
)
LockedRefusal = (
    LockedStageCount
    | LockedUnknownNode
    | LockedDuplicateNode
    | LockedInvalidRange
    | LockedNonContiguousRange
    | LockedIncompleteCoverage
    | LockedTopologyDoesNotFit
)
PlanRefusal = RequestRefusal | NoValidTopology | TensorDoesNotFit | LockedRefusal
