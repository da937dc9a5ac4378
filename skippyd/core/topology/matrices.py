"""The second check: what a model's file really puts on the first and last stage.

The seed's formula counts layers only. The token embedding lies on the first
stage, the output matrix on the last; a tied model needs its embedding on both.
The plan by the formula stands when those bytes fit too. Otherwise the matrices
are counted as part of the first and the last layer, and planning goes again; what
then does not fit is refused, and the refusal names the matrix.
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


@attrs.frozen(kw_only=True)
class EndMatrices:
    """Matrices outside the layers, with their names in the file.

    Args:
        embedding_name: The first stage's matrix.
        embedding_bytes: Its size.
        output_name: The last stage's matrix; the embedding again when tied.
        output_bytes: Its size.
        is_tied: One matrix is both, and a single stage holds it once.
    """

    embedding_name: str
    embedding_bytes: int
    output_name: str
    output_bytes: int
    is_tied: bool

    def on_stage(self, *, is_first: bool, is_last: bool) -> dict[str, int]:
        """Bytes by name of what such a stage holds beside its layers."""
        held: dict[str, int] = {}
        if is_first:
            held[self.embedding_name] = self.embedding_bytes
        if is_last:
            held[self.output_name] = self.output_bytes
        return held


def plan_with_matrices(
    request: PlanRequest, matrices: EndMatrices
) -> TopologyPlan | PlanRefusal:
    """Plan, then count the real bytes; the stages of the answer carry them.

    Args:
        request: Its model has the real weights of each layer.
        matrices: What lies outside the layers.
    """
    by_formula = plan_topology(request)
    if not isinstance(by_formula, TopologyPlan):
        return by_formula
    checked = add_matrices(by_formula, matrices)
    if isinstance(checked, TopologyPlan):
        return checked
    both = plan_topology(_counted(request, matrices, matrices.output_bytes))
    loads = _real_plan(request, both, matrices)
    if loads is None and matrices.is_tied:
        # A single stage holds a tied matrix once.
        once = plan_topology(_counted(request, matrices, 0))
        loads = _real_plan(request, once, matrices)
    if loads is not None:
        return loads
    if isinstance(both, NoValidTopology):
        return attrs.evolve(
            checked,
            largest_context=both.largest_context,
            one_more_node_bytes=both.one_more_node_bytes,
        )
    return checked


def add_matrices(
    plan: TopologyPlan, matrices: EndMatrices
) -> TopologyPlan | TensorDoesNotFit:
    """The plan with the matrices counted, or the first one that does not fit."""
    stages: list[StageAssignment] = []
    for stage in plan.stages:
        held = matrices.on_stage(
            is_first=stage.stage_index == 0,
            is_last=stage.stage_index == len(plan.stages) - 1,
        )
        extra = sum(held.values())
        full = attrs.evolve(
            stage,
            parameter_bytes=stage.parameter_bytes + extra,
            remaining_bytes=stage.remaining_bytes - extra,
        )
        if full.remaining_bytes < 0:
            name = max(held, key=lambda name: held[name])
            return TensorDoesNotFit(
                tensor=name,
                tensor_bytes=held[name],
                stage=full,
                context_length=plan.context_length,
            )
        stages.append(full)
    return attrs.evolve(plan, stages=tuple(stages))


def _counted(
    request: PlanRequest, matrices: EndMatrices, last_extra_bytes: int
) -> PlanRequest:
    """The same question with the matrices as part of the end layers."""
    weights = list(request.model.weights())
    weights[0] += matrices.embedding_bytes
    weights[-1] += last_extra_bytes
    model = attrs.evolve(request.model, layer_weight_bytes=tuple(weights))
    return attrs.evolve(request, model=model)


def _real_plan(
    request: PlanRequest, answer: TopologyPlan | PlanRefusal, matrices: EndMatrices
) -> TopologyPlan | None:
    """The answer with its stages' real bytes, None unless it loads."""
    if not isinstance(answer, TopologyPlan):
        return None
    known = {node.node_id: node for node in request.nodes}
    nodes = [known[stage.node_id] for stage in answer.stages]
    cuts = [0, *(stage.layer_end for stage in answer.stages)]
    stages = assign(nodes, cuts, request.model, answer.context_length)
    real = add_matrices(attrs.evolve(answer, stages=stages), matrices)
    return real if isinstance(real, TopologyPlan) else None
