"""The second check: what a model's file really puts on each stage.

The seed's formula counts layers only. The token embedding lies on the first
stage, the output matrix on the last; a tied model needs its embedding on both.
The plan by the formula stands when those bytes fit too. Otherwise they are
counted as part of the layers at the ends, and planning goes again; what then does
not fit is refused, and the refusal names the matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.topology.plan import NoValidTopology, TensorDoesNotFit, TopologyPlan
from skippyd.core.topology.planner import plan_topology
from skippyd.core.topology.stages import assign


if TYPE_CHECKING:
    from skippyd.core.topology.plan import PlanRefusal, StageAssignment
    from skippyd.core.topology.request import PlanRequest


NamedBytes = tuple[tuple[str, int], ...]
"""Tensors outside the layers and their sizes."""


@attrs.frozen(kw_only=True)
class OutsideTensors:
    """What a stage holds beside its layers, by its place in the chain.

    Args:
        whole: Of the only stage; a tied embedding counts once.
        first: Of the first of several.
        middle: Of those between.
        last: Of the last of several.
    """

    whole: NamedBytes
    first: NamedBytes
    middle: NamedBytes
    last: NamedBytes

    def on_stage(self, index: int, stage_count: int) -> NamedBytes:
        """What stage `index` of `stage_count` holds."""
        if stage_count == 1:
            return self.whole
        if index == 0:
            return self.first
        return self.last if index == stage_count - 1 else self.middle


def plan_with_matrices(
    request: PlanRequest, outside: OutsideTensors
) -> TopologyPlan | PlanRefusal:
    """Plan, then count the real bytes; the stages of the answer carry them.

    Args:
        request: Its model has the real weights of each layer.
        outside: The tensors that belong to no layer.
    """
    by_formula = plan_topology(request)
    if not isinstance(by_formula, TopologyPlan):
        return by_formula
    checked = add_matrices(by_formula, outside)
    if isinstance(checked, TopologyPlan):
        return checked
    counted = plan_topology(counted_request(request, outside))
    # A single stage may hold less than both ends of a chain together.
    alone = plan_topology(_alone(request, outside))
    loading = [
        real
        for answer in (counted, alone)
        if isinstance(answer, TopologyPlan)
        and isinstance(real := _with_real_bytes(request, answer, outside), TopologyPlan)
    ]
    if loading:
        return min(loading, key=_rank)
    assert isinstance(counted, NoValidTopology)  # what it plans, loads
    return TensorDoesNotFit(
        tensor=checked.tensor,
        tensor_bytes=checked.tensor_bytes,
        stage=checked.stage,
        context_length=by_formula.context_length,
        minimum_context=counted.minimum_context,
        largest_context=counted.largest_context,
        one_more_node_bytes=counted.one_more_node_bytes,
    )


@attrs.frozen(kw_only=True)
class TightTensor:
    """A matrix that is too much for its stage."""

    tensor: str
    tensor_bytes: int
    stage: StageAssignment


def add_matrices(
    plan: TopologyPlan, outside: OutsideTensors
) -> TopologyPlan | TightTensor:
    """The plan with the tensors counted, or the first matrix that does not fit."""
    stages: list[StageAssignment] = []
    for stage in plan.stages:
        held = outside.on_stage(stage.stage_index, len(plan.stages))
        extra = _total(held)
        full = attrs.evolve(
            stage,
            parameter_bytes=stage.parameter_bytes + extra,
            remaining_bytes=stage.remaining_bytes - extra,
        )
        if full.remaining_bytes < 0:
            name, size = max(held, key=lambda named: named[1])
            return TightTensor(tensor=name, tensor_bytes=size, stage=full)
        stages.append(full)
    return attrs.evolve(plan, stages=tuple(stages))


def _total(tensors: NamedBytes) -> int:
    return sum(size for _, size in tensors)


def counted_request(request: PlanRequest, outside: OutsideTensors) -> PlanRequest:
    """The same question with the tensors of both ends as part of the end layers.

    What every stage holds is a few vectors; it is counted on every layer.
    """
    weights = [w + _total(outside.middle) for w in request.model.weights()]
    first, last = _total(outside.first), _total(outside.last)
    weights[0] += first
    weights[-1] += max(last, _total(outside.whole) - first)
    return _reweighed(request, weights)


def _alone(request: PlanRequest, outside: OutsideTensors) -> PlanRequest:
    """The same question for one node that holds everything."""
    weights = list(request.model.weights())
    weights[0] += _total(outside.whole)
    return _reweighed(request, weights)


def _reweighed(request: PlanRequest, weights: list[int]) -> PlanRequest:
    model = attrs.evolve(request.model, layer_weight_bytes=tuple(weights))
    return attrs.evolve(request, model=model)


def _rank(plan: TopologyPlan) -> tuple[int, int, int]:
    """The planner's order between plans of the same question."""
    return (plan.estimate_us or 0, -plan.context_length, len(plan.stages))


def _with_real_bytes(
    request: PlanRequest, answer: TopologyPlan, outside: OutsideTensors
) -> TopologyPlan | TightTensor:
    """The answer's ranges with what its stages really hold."""
    known = {node.node_id: node for node in request.nodes}
    nodes = [known[stage.node_id] for stage in answer.stages]
    cuts = [0, *(stage.layer_end for stage in answer.stages)]
    stages = assign(nodes, cuts, request.model, answer.context_length)
    return add_matrices(attrs.evolve(answer, stages=stages), outside)
