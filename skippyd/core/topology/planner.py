"""Plans a topology: `plan_topology(request)` gives a plan or says why not.

The order of the seed decides (`ranking.py`), memory by the seed's formula
(`request.py`), ranges as fair as they can be (`balance.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.topology.checks import check_request
from skippyd.core.topology.ranking import (
    assumed_latencies,
    best_by_context,
    best_by_latency,
    ordered,
)
from skippyd.core.topology.shortage import no_valid_topology
from skippyd.core.topology.stages import assign, finish


if TYPE_CHECKING:
    from skippyd.core.topology.plan import PlanRefusal, TopologyPlan
    from skippyd.core.topology.request import PlanRequest


def plan_topology(request: PlanRequest) -> TopologyPlan | PlanRefusal:
    """Choose context, nodes and layer ranges.

    Without a latency anywhere a target cannot be judged: the plan is then the
    one without a target, and `target_met` is None.
    """
    refusal = check_request(request)
    if refusal is not None:
        return refusal
    nodes = ordered(request.nodes)
    latencies = assumed_latencies(nodes)
    if latencies is None:
        candidate = best_by_context(nodes, request)
    else:
        candidate = best_by_latency(nodes, latencies, request)
    if candidate is None:
        return no_valid_topology(request)
    stages = assign(
        candidate.nodes, candidate.cuts, request.model, candidate.context_length
    )
    return finish(request, candidate.context_length, stages)
