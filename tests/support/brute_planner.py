"""A slow, obvious planner: every set of nodes, every way to cut the layers.

Written from the rules alone; shares nothing with `skippyd.core.topology` but the
question it is asked.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import TYPE_CHECKING, NamedTuple

import attrs


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.core.topology.request import PlanRequest


NEVER_SHORT = 10**30


class Option(NamedTuple):
    """Sorts so that the best option is the smallest."""

    key: tuple[object, ...]
    context_length: int
    ranges: tuple[tuple[str, int, int], ...]
    estimate_us: int | None
    target_met: bool | None


@attrs.frozen
class Facts:
    """Memory and latency of the nodes, worked out once."""

    usable: dict[str, int]
    latency: dict[str, int] | None


def _facts(request: PlanRequest) -> Facts:
    usable = {}
    for node in request.nodes:
        limit = node.vram_bytes
        if node.max_vram_bytes is not None and node.max_vram_bytes < limit:
            limit = node.max_vram_bytes
        usable[str(node.node_id)] = max(limit - node.headroom_bytes, 0)
    known = [n.latency_us for n in request.nodes if n.latency_us is not None]
    if not known:
        return Facts(usable, None)
    latency = {
        str(n.node_id): max(known) if n.latency_us is None else n.latency_us
        for n in request.nodes
    }
    return Facts(usable, latency)


def _contexts(request: PlanRequest) -> list[int]:
    if request.context_override is not None:
        return [request.context_override]
    native = request.model.native_context
    tried = [2**p for p in range(9, 18) if min(native, 65536) <= 2**p <= native]
    return sorted({native, *tried}, reverse=True)


def _layer_bytes(request: PlanRequest, context: int) -> list[int]:
    model = request.model
    count = model.layer_count
    kv = (model.kv_bytes_per_token + count - 1) // count * context
    if len(model.layer_weight_bytes) == count:
        return [weight + kv for weight in model.layer_weight_bytes]
    return [(model.weight_bytes + count - 1) // count + kv] * count


def _options(request: PlanRequest) -> Iterator[Option]:
    facts = _facts(request)
    order = sorted(facts.usable, key=lambda name: (-facts.usable[name], name))
    layer_count = request.model.layer_count
    for context in _contexts(request):
        level = (context, _layer_bytes(request, context))
        for count in range(max(1, request.min_nodes), len(order) + 1):
            for chosen in combinations(order, count):
                for inner in combinations(range(1, layer_count), count - 1):
                    cuts = (0, *inner, layer_count)
                    option = _option(request, facts, level, chosen, cuts)
                    if option is not None:
                        yield option


def _option(
    request: PlanRequest,
    facts: Facts,
    level: tuple[int, list[int]],
    chosen: tuple[str, ...],
    cuts: tuple[int, ...],
) -> Option | None:
    context, layers = level
    margins = [
        facts.usable[name] - sum(layers[start:end])
        for name, (start, end) in zip(chosen, pairwise(cuts), strict=True)
    ]
    if min(margins) < 0:
        return None
    estimate = met = None
    if facts.latency is not None:
        estimate = len(chosen) * max(facts.latency[name] for name in chosen)
        if request.target_tpot_us is not None:
            met = estimate <= request.target_tpot_us
    fairness = tuple(-margin for margin in [*sorted(margins), NEVER_SHORT])
    earlier = tuple(start - end for start, end in pairwise(cuts))
    if estimate is None:
        order: tuple[object, ...] = (-context, len(chosen))
    else:
        order = (met is False, estimate, -context)
    return Option(
        (*order, fairness, chosen, earlier),
        context,
        tuple((n, s, e) for n, (s, e) in zip(chosen, pairwise(cuts), strict=True)),
        estimate,
        met,
    )


def brute_plan(request: PlanRequest) -> Option | None:
    """The best of all options, None when there is none."""
    return min(_options(request), key=lambda option: option.key, default=None)


def brute_margins(usable: list[int], layers: list[int]) -> tuple[int, ...]:
    """Cuts of the fairest ranges on fixed nodes, short of memory or not."""

    def rank(cuts: tuple[int, ...]) -> tuple[list[int], list[int]]:
        margins = [
            room - sum(layers[start:end])
            for room, (start, end) in zip(usable, pairwise(cuts), strict=True)
        ]
        return sorted(margins), [end - start for start, end in pairwise(cuts)]

    inner = combinations(range(1, len(layers)), len(usable) - 1)
    return max(((0, *cuts, len(layers)) for cuts in inner), key=rank)
