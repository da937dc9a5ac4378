"""Which context and which nodes win: the two orders of the seed.

Without latencies: larger context, fewer nodes, more lanes, margins. With them:
target met, lower estimate, larger context, more lanes, margins. Lanes cost no
memory, so they never decide; an estimate no other can beat meets the target if
any does, so the target never decides either.

Theory of the second order. An estimate is count times the largest latency in the
set. For a limit on the latency the best set of c nodes is the first c nodes
within the limit (`fitting.py`, 1), and the smallest count that fits falls as the
limit rises; the smallest estimate E over all limits, at the smallest context, is
the smallest there is. A set with estimate E has c nodes and largest latency E / c:
one set for each latency that divides E, the finalists. Only a latency of 0 leaves
the count open. The largest context some finalist holds is taken, then margins
compare: sorted, the smallest first, a stage that is not there counting as never
short. Two finalists have different counts, so their margins are never equal.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

import attrs

from skippyd.core.topology.balance import balanced_cuts
from skippyd.core.topology.fitting import (
    fewest_stages,
    fits,
    prefix_bytes,
    widest_margin,
)


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.topology.request import ModelShape, Node, PlanRequest


@attrs.frozen(kw_only=True)
class Candidate:
    """Nodes in stage order with where their ranges end, at one context."""

    context_length: int
    nodes: tuple[Node, ...]
    cuts: tuple[int, ...]


def ordered(nodes: Sequence[Node]) -> list[Node]:
    """Nodes in stage order: usable memory descending, then node id."""
    return sorted(nodes, key=lambda node: (-node.usable_bytes, node.node_id))


def layer_prefix(model: ModelShape, context_length: int) -> tuple[int, ...]:
    """Running total of the layers' bytes, weights and KV cache, at a context."""
    return prefix_bytes(model.weights(), model.kv_layer_bytes(context_length))


def assumed_latencies(nodes: Sequence[Node]) -> list[int] | None:
    """Latency of each node, the largest known one where it has none.

    None when no node has one.
    """
    known = [node.latency_us for node in nodes if node.latency_us is not None]
    if not known:
        return None
    worst = max(known)
    return [worst if node.latency_us is None else node.latency_us for node in nodes]


def lay_out(nodes: Sequence[Node], model: ModelShape, context_length: int) -> Candidate:
    """The fairest ranges for these nodes, which must be in stage order."""
    usable = [node.usable_bytes for node in nodes]
    cuts = balanced_cuts(usable, layer_prefix(model, context_length))
    return Candidate(context_length=context_length, nodes=tuple(nodes), cuts=cuts)


def best_by_context(nodes: Sequence[Node], request: PlanRequest) -> Candidate | None:
    """First order: the largest context that fits, on the fewest nodes.

    Args:
        nodes: In stage order.
        request: The question.
    """
    usable = [node.usable_bytes for node in nodes[: request.model.layer_count]]
    for context in request.contexts():
        prefix = layer_prefix(request.model, context)
        count = fewest_stages(usable, prefix, request.stages_min)
        if count is not None:
            return lay_out(nodes[:count], request.model, context)
    return None


def best_by_latency(
    nodes: Sequence[Node], latencies_us: Sequence[int], request: PlanRequest
) -> Candidate | None:
    """Second order: the lowest estimate, then the largest context, then margins.

    Args:
        nodes: In stage order.
        latencies_us: One for each node.
        request: The question.
    """
    smallest = layer_prefix(request.model, request.contexts()[-1])
    estimate = lowest_estimate_us(nodes, latencies_us, smallest, request.stages_min)
    if estimate is None:
        return None
    sets = _finalists(nodes, latencies_us, estimate, request)
    # The estimate was found at the smallest context, so there is a first one.
    context, holding = next(
        (context, holding)
        for context in request.contexts()
        if (holding := _holding(sets, request.model, context))
    )
    return _widest(holding, request.model, context)


def _holding(
    sets: Sequence[Sequence[Node]], model: ModelShape, context_length: int
) -> list[Sequence[Node]]:
    """The sets that hold all layers at a context."""
    prefix = layer_prefix(model, context_length)
    return [chosen for chosen in sets if fits([n.usable_bytes for n in chosen], prefix)]


def lowest_estimate_us(
    nodes: Sequence[Node],
    latencies_us: Sequence[int],
    prefix: Sequence[int],
    at_least: int,
) -> int | None:
    """Smallest count times largest latency over all sets that hold the layers."""
    most = len(prefix) - 1
    places: list[int] = []
    usable: list[int] = []
    best: int | None = None
    by_latency = sorted(range(len(nodes)), key=latencies_us.__getitem__)
    for place in by_latency:
        latency = latencies_us[place]
        if best is not None and latency * at_least >= best:
            break
        at = bisect_left(places, place)
        if at == most:
            continue
        places.insert(at, place)
        usable.insert(at, nodes[place].usable_bytes)
        del places[most:], usable[most:]
        count = fewest_stages(usable, prefix, at_least)
        if count is not None and (best is None or count * latency < best):
            best = count * latency
    return best


def _finalists(
    nodes: Sequence[Node],
    latencies_us: Sequence[int],
    estimate_us: int,
    request: PlanRequest,
) -> list[list[Node]]:
    """The one best set for each count and latency that give this estimate."""
    most = min(len(nodes), request.model.layer_count)
    counts = range(most, request.stages_min - 1, -1)
    present = set(latencies_us)
    sets: list[list[Node]] = []
    for count in counts:
        latency, rest = divmod(estimate_us, count)
        if rest or latency not in present:
            continue
        within = [
            node
            for node, own in zip(nodes, latencies_us, strict=True)
            if own <= latency
        ]
        if len(within) >= count:
            sets.append(within[:count])
    return sets


def _widest(
    sets: Sequence[Sequence[Node]], model: ModelShape, context_length: int
) -> Candidate:
    """The set with the best margins."""
    prefix = layer_prefix(model, context_length)
    tied = _with_widest_margin(sets, prefix)
    best = lay_out(tied[0], model, context_length)
    for chosen in tied[1:]:
        candidate = lay_out(chosen, model, context_length)
        if margins(candidate, prefix) > margins(best, prefix):
            best = candidate
    return best


def _with_widest_margin(
    sets: Sequence[Sequence[Node]], prefix: Sequence[int]
) -> list[Sequence[Node]]:
    """The sets whose smallest margin can be the largest of all."""
    usable = [[node.usable_bytes for node in chosen] for chosen in sets]
    # Scattered, a rising or falling row of margins is bisected a few times only.
    scattered = sorted(range(len(sets)), key=lambda at: at * 40_503 % 65_536)
    margin = -1
    for at in scattered:
        if fits(usable[at], prefix, margin + 1):
            margin = widest_margin(usable[at], prefix, first=0, last=len(prefix) - 1)
    return [sets[at] for at, own in enumerate(usable) if fits(own, prefix, margin)]


def margins(candidate: Candidate, prefix: Sequence[int]) -> tuple[float, ...]:
    """Bytes left on each node, ascending, then infinity for stages not there."""
    left = sorted(
        node.usable_bytes - (prefix[end] - prefix[start])
        for node, start, end in zip(
            candidate.nodes, candidate.cuts, candidate.cuts[1:], strict=False
        )
    )
    return (*left, math.inf)
