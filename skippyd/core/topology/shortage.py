"""What is missing when nothing fits, and the nearest thing that would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.topology.fitting import fewest_stages, fits, largest, widest_margin
from skippyd.core.topology.plan import NoValidTopology
from skippyd.core.topology.ranking import lay_out, layer_prefix, ordered
from skippyd.core.topology.stages import assign


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.topology.plan import StageAssignment
    from skippyd.core.topology.request import ModelShape, Node, PlanRequest


CONTEXT_GRAIN = 256
"""llama.cpp rounds a context up to this."""


def no_valid_topology(request: PlanRequest) -> NoValidTopology:
    """Explain why no arrangement fits at the smallest context tried."""
    nodes = ordered(request.nodes)
    context = request.contexts()[-1]
    return NoValidTopology(
        minimum_context=request.model.context_floor,
        context_length=context,
        min_nodes=request.stages_min,
        layer_count=request.model.layer_count,
        node_count=len(nodes),
        nearest=nearest_arrangement(nodes, request, context),
        largest_context=largest_context(nodes, request),
        one_more_node_bytes=one_more_node_bytes(nodes, request, context),
    )


def nearest_arrangement(
    nodes: Sequence[Node], request: PlanRequest, context_length: int
) -> tuple[StageAssignment, ...]:
    """The stages that miss the least on their worst node; fewer win a tie.

    Args:
        nodes: In stage order.
        request: The question.
        context_length: Tokens every stage has to hold.

    Returns:
        Nothing when no count of stages is possible.
    """
    model = request.model
    prefix = layer_prefix(model, context_length)
    usable = [node.usable_bytes for node in nodes[: model.layer_count]]
    best_count, best_margin = 0, 0
    for count in range(request.stages_min, len(usable) + 1):
        own = usable[:count]
        if best_count and not fits(own, prefix, best_margin + 1):
            continue
        best_count = count
        best_margin = widest_margin(own, prefix, first=0, last=model.layer_count)
    if not best_count:
        return ()
    return arrangement(nodes[:best_count], model, context_length)


def arrangement(
    nodes: Sequence[Node], model: ModelShape, context_length: int
) -> tuple[StageAssignment, ...]:
    """The fairest stages on exactly these nodes, whether they fit or not."""
    candidate = lay_out(nodes, model, context_length)
    return assign(candidate.nodes, candidate.cuts, model, context_length)


def largest_context(nodes: Sequence[Node], request: PlanRequest) -> int:
    """Most tokens the nodes would hold, a multiple of 256, 0 for none at all."""
    model = request.model
    usable = [node.usable_bytes for node in nodes[: model.layer_count]]

    def holds(steps: int) -> bool:
        prefix = layer_prefix(model, steps * CONTEXT_GRAIN)
        return fewest_stages(usable, prefix, request.stages_min) is not None

    return CONTEXT_GRAIN * largest(0, model.native_context // CONTEXT_GRAIN, holds)


def one_more_node_bytes(
    nodes: Sequence[Node], request: PlanRequest, context_length: int
) -> int | None:
    """Least usable memory of one more node with which the model fits."""
    prefix = layer_prefix(request.model, context_length)
    usable = [node.usable_bytes for node in nodes]

    def lacks(size: int) -> bool:
        own = sorted([*usable, size], reverse=True)[: request.model.layer_count]
        return fewest_stages(own, prefix, request.stages_min) is None

    # Bisection for the largest size that is still too small.
    if lacks(prefix[-1]):
        return None
    return largest(0, prefix[-1], lacks) + 1
