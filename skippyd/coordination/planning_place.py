"""Chains that begin on this node: a coordinator runs stage 0 itself.

The planner orders nodes by memory. When its plan begins elsewhere, the same contexts
and numbers of stages are tried with this node in front; what wins is ranked as the
planner ranks (seed, "Topology Planning").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.topology.balance import balanced_cuts
from skippyd.core.topology.fitting import largest, widest_margin
from skippyd.core.topology.matrices import (
    add_matrices,
    counted_request,
    plan_with_matrices,
)
from skippyd.core.topology.plan import TopologyPlan
from skippyd.core.topology.ranking import assumed_latencies, layer_prefix, ordered
from skippyd.core.topology.stages import assign, finish
from skippyd.errors import RefusedError


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skippyd.core.topology.matrices import OutsideTensors
    from skippyd.core.topology.plan import PlanRefusal
    from skippyd.core.topology.request import Node, PlanRequest
    from skippyd.ids import NodeId


def plan_from_node(
    request: PlanRequest, outside: OutsideTensors, own_id: NodeId
) -> TopologyPlan | PlanRefusal:
    """Plan a chain whose first stage lies on a certain node of the request.

    Raises:
        RefusedError: Chains fit, but none that begins there; the message says where
            one would begin.
    """
    answer = plan_with_matrices(request, outside)
    if not isinstance(answer, TopologyPlan) or answer.stages[0].node_id == own_id:
        return answer
    found = sorted(_candidates(request, outside, own_id), key=_rank)
    if found:
        return found[0]
    raise RefusedError(
        f"no chain fits that begins on {own_id}, this node, and the coordinator runs "
        f"the first stage; one that begins on {answer.stages[0].node_id} fits: deploy "
        "there"
    )


def _candidates(
    request: PlanRequest, outside: OutsideTensors, own_id: NodeId
) -> Iterator[TopologyPlan]:
    nodes = ordered(request.nodes)
    own = next(node for node in nodes if node.node_id == own_id)
    for others in _within_each_limit(request, own):
        most = min(len(others) + 1, request.model.layer_count)
        for count in range(request.stages_min, most + 1):
            chosen = (own, *others[: count - 1])
            plan = _largest(request, outside, chosen)
            if plan is not None:
                yield plan


def _within_each_limit(request: PlanRequest, own: Node) -> Iterator[Sequence[Node]]:
    """The other nodes in stage order, all of them and then only nearer ones."""
    nodes = ordered(request.nodes)
    others = [node for node in nodes if node is not own]
    latencies = assumed_latencies(nodes)
    if latencies is None or not others:
        yield others
        return
    distance = {
        node.node_id: latency for node, latency in zip(nodes, latencies, strict=True)
    }
    for limit in sorted({distance[node.node_id] for node in others}, reverse=True):
        yield [node for node in others if distance[node.node_id] <= limit]


def _largest(
    request: PlanRequest, outside: OutsideTensors, nodes: tuple[Node, ...]
) -> TopologyPlan | None:
    """The plan on exactly these nodes with the largest context that fits."""
    # A single stage holds less than both ends of a chain together.
    counted = request if len(nodes) == 1 else counted_request(request, outside)
    for context in request.contexts():
        cuts = fair_cuts(
            [node.usable_bytes for node in nodes], layer_prefix(counted.model, context)
        )
        stages = assign(nodes, cuts, request.model, context)
        if min(stage.remaining_bytes for stage in stages) < 0:
            continue
        plan = add_matrices(finish(request, context, stages), outside)
        if isinstance(plan, TopologyPlan):
            return plan
    return None


def fair_cuts(usable: Sequence[int], prefix: Sequence[int]) -> tuple[int, ...]:
    """Where ranges end when the first node is of any size, with a 0 in front.

    Args:
        usable: Bytes of the nodes; all but the first descending.
        prefix: Running total of the layers' bytes, at least as many layers as nodes.
    """
    own, others, layers = usable[0], usable[1:], len(prefix) - 1
    if not others:
        return (0, layers)

    def own_margin(end: int) -> int:
        return own - (prefix[end] - prefix[0])

    def later_margin(end: int) -> int:
        return widest_margin(others, prefix, first=end, last=layers)

    # The more the first node takes, the less it keeps and the more the others do.
    most = layers - len(others)
    balance = largest(1, most, lambda end: later_margin(end) <= own_margin(end))
    end = max(
        (balance, min(balance + 1, most)),
        key=lambda end: min(own_margin(end), later_margin(end)),
    )
    later = balanced_cuts(others, prefix[end:])
    return (0, *(end + cut for cut in later))


def _rank(plan: TopologyPlan) -> tuple[int, int, int, int]:
    return (
        plan.estimate_us or 0,
        -plan.context_length,
        len(plan.stages),
        -plan.smallest_margin_bytes,
    )
