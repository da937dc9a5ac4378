"""Why a plan is what it is: the candidates beside it and what stopped them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import attrs

from skippyd.core.topology.fitting import fits, largest
from skippyd.core.topology.plan import NoValidTopology, TopologyPlan
from skippyd.core.topology.planner import plan_topology
from skippyd.core.topology.ranking import assumed_latencies, layer_prefix, ordered
from skippyd.core.topology.shortage import arrangement


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.topology.plan import StageAssignment
    from skippyd.core.topology.request import Node, PlanRequest


COUNTS_SHOWN = 12
"""Numbers of stages looked at for each context; more would not be read."""


class Verdict(Enum):
    """What became of a candidate."""

    CHOSEN = "chosen"
    FITS = "fits"
    DOES_NOT_FIT = "does not fit"


@attrs.frozen(kw_only=True)
class Attempt:
    """One context with one number of stages, on the best nodes for it.

    Args:
        context_length: Tokens tried.
        stages: Negative `remaining_bytes` where memory is missing.
        estimate_us: Network share of a token; None without latencies.
        verdict: What became of it.
    """

    context_length: int
    stages: tuple[StageAssignment, ...]
    estimate_us: int | None
    verdict: Verdict

    @property
    def smallest_margin_bytes(self) -> int:
        """Memory left on the fullest node, negative when it is short."""
        return min(stage.remaining_bytes for stage in self.stages)

    @property
    def missing_bytes(self) -> int:
        """Memory missing over all nodes."""
        return -sum(min(0, stage.remaining_bytes) for stage in self.stages)


@attrs.frozen(kw_only=True)
class Explanation:
    """The neighbours of a plan.

    Args:
        larger_context: The nearest try at the next larger context; None when the
            plan has the largest one that may be offered.
        fewer_nodes: The try with one stage less; None when that is not allowed.
        attempts: Every candidate looked at, larger contexts first.
    """

    larger_context: Attempt | None
    fewer_nodes: Attempt | None
    attempts: tuple[Attempt, ...]


def explain_plan(request: PlanRequest, plan: TopologyPlan) -> Explanation:
    """Look at the candidates around a plan of this request."""
    search = _Search.of(request)
    count = len(plan.stages)
    attempts = [
        _chosen(plan)
        if (context, tried) == (plan.context_length, count)
        else search.attempt(context, tried)
        for context in request.contexts()
        for tried in search.counts(count)
    ]
    larger = [c for c in request.contexts() if c > plan.context_length]
    may_be_fewer = count > request.stages_min
    return Explanation(
        larger_context=_best_at(request, larger[-1]) if larger else None,
        fewer_nodes=(
            search.attempt(plan.context_length, count - 1) if may_be_fewer else None
        ),
        attempts=tuple(attempts),
    )


def _chosen(plan: TopologyPlan) -> Attempt:
    return Attempt(
        context_length=plan.context_length,
        stages=plan.stages,
        estimate_us=plan.estimate_us,
        verdict=Verdict.CHOSEN,
    )


def _best_at(request: PlanRequest, context_length: int) -> Attempt:
    """The plan at a context that was not chosen, or what comes closest to one."""
    answer = plan_topology(attrs.evolve(request, context_override=context_length))
    if isinstance(answer, TopologyPlan):
        return attrs.evolve(_chosen(answer), verdict=Verdict.FITS)
    assert isinstance(answer, NoValidTopology)  # all else was checked before
    return Attempt(
        context_length=context_length,
        stages=answer.nearest,
        estimate_us=None,
        verdict=Verdict.DOES_NOT_FIT,
    )


@attrs.frozen(kw_only=True)
class _Search:
    """Nodes in stage order with the latencies that count, 0 without any."""

    request: PlanRequest
    nodes: tuple[Node, ...]
    latencies_us: tuple[int, ...]
    is_measured: bool

    @classmethod
    def of(cls, request: PlanRequest) -> _Search:
        nodes = ordered(request.nodes)
        latencies = assumed_latencies(nodes)
        return cls(
            request=request,
            nodes=tuple(nodes),
            latencies_us=(0,) * len(nodes) if latencies is None else tuple(latencies),
            is_measured=latencies is not None,
        )

    def counts(self, chosen: int) -> Sequence[int]:
        """Numbers of stages worth showing; the chosen one is among them."""
        most = min(len(self.nodes), self.request.model.layer_count)
        first = max(self.request.stages_min, chosen - COUNTS_SHOWN + 2)
        return range(first, min(most, first + COUNTS_SHOWN - 1) + 1)

    def attempt(self, context_length: int, count: int) -> Attempt:
        """The quickest nodes that fit this context and number, else the largest."""
        limit = self._latency_limit(context_length, count)
        nodes = self._within(limit)[:count]
        stages = arrangement(nodes, self.request.model, context_length)
        is_short = min(stage.remaining_bytes for stage in stages) < 0
        return Attempt(
            context_length=context_length,
            stages=stages,
            estimate_us=count * limit if self.is_measured and not is_short else None,
            verdict=Verdict.DOES_NOT_FIT if is_short else Verdict.FITS,
        )

    def _latency_limit(self, context_length: int, count: int) -> int:
        """Smallest latency within which `count` nodes hold the layers, or any."""
        prefix = layer_prefix(self.request.model, context_length)
        limits = sorted(set(self.latencies_us), reverse=True)

        def holds(at: int) -> bool:
            own = [node.usable_bytes for node in self._within(limits[at])[:count]]
            return len(own) == count and fits(own, prefix)

        return limits[largest(0, len(limits) - 1, holds)]

    def _within(self, limit_us: int) -> list[Node]:
        """The nodes no farther than the limit, in stage order."""
        return [
            node
            for node, own in zip(self.nodes, self.latencies_us, strict=True)
            if own <= limit_us
        ]
