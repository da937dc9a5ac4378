"""Turns nodes and cuts into stages with their bytes, and stages into a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.topology.plan import StageAssignment, TopologyPlan
from skippyd.core.topology.ranking import assumed_latencies


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.topology.request import ModelShape, Node, PlanRequest


def assign(
    nodes: Sequence[Node], cuts: Sequence[int], model: ModelShape, context_length: int
) -> tuple[StageAssignment, ...]:
    """Stages of these nodes; node i holds layers cuts[i]..cuts[i + 1]."""
    weights = model.weights()
    kv_layer = model.kv_layer_bytes(context_length)
    stages: list[StageAssignment] = []
    for index, node in enumerate(nodes):
        start, end = cuts[index], cuts[index + 1]
        parameters, kv = sum(weights[start:end]), kv_layer * (end - start)
        stages.append(
            StageAssignment(
                stage_index=index,
                node_id=node.node_id,
                layer_start=start,
                layer_end=end,
                parameter_bytes=parameters,
                kv_bytes=kv,
                remaining_bytes=node.usable_bytes - parameters - kv,
            )
        )
    return tuple(stages)


def finish(
    request: PlanRequest, context_length: int, stages: tuple[StageAssignment, ...]
) -> TopologyPlan:
    """The plan of these stages, with what the network costs a token.

    The estimate is the count of stages times the largest latency among them
    (seed); a node without a latency counts with the largest one known.
    """
    latencies = assumed_latencies(request.nodes)
    estimate_us = target_met = None
    assumed: tuple[Node, ...] = ()
    if latencies is not None:
        chosen = {stage.node_id for stage in stages}
        used = [
            (node, latency)
            for node, latency in zip(request.nodes, latencies, strict=True)
            if node.node_id in chosen
        ]
        estimate_us = len(stages) * max(latency for _, latency in used)
        assumed = tuple(node for node, _ in used if node.latency_us is None)
        if request.target_tpot_us is not None:
            target_met = estimate_us <= request.target_tpot_us
    return TopologyPlan(
        context_length=context_length,
        lanes=request.lanes,
        stages=stages,
        estimate_us=estimate_us,
        target_met=target_met,
        assumed_latency=tuple(sorted(node.node_id for node in assumed)),
    )
