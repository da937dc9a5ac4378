"""A plan's decisions in words: what was chosen and what stopped the next better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.topology.explain import Verdict
from skippyd.units import MIB, counted, format_bytes


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skippyctl.planning import Outcome
    from skippyd.core.topology.explain import Attempt, Explanation
    from skippyd.core.topology.matrices import OutsideTensors
    from skippyd.core.topology.plan import TopologyPlan
    from skippyd.core.topology.request import PlanRequest


NAMES_SHOWN = 4
"""Nodes a line names before it only counts them."""


def decision_lines(outcome: Outcome) -> list[tuple[str, str]]:
    """Label and sentence of each decision; nothing for a refusal."""
    request, plan, why = outcome.request, outcome.plan, outcome.explanation
    if request is None or plan is None or why is None:
        return []
    lines = [
        ("context", f"{plan.context_length:,} tokens: {_context(request, plan, why)}"),
        ("nodes", _nodes(request, plan, why)),
        ("lanes", _lanes(request)),
        ("network", _network(request, plan)),
    ]
    lines += [("note", note) for note in _notes(request, plan)]
    if outcome.outside is not None:
        lines += [("note", note) for note in _held(outcome.outside, plan)]
    return lines


def milliseconds(microseconds: int) -> str:
    """A latency for people: `20 ms`, `0.25 ms`."""
    return f"{microseconds / 1000:.3f}".rstrip("0").rstrip(".") + " ms"


def names(ids: Sequence[str]) -> str:
    """The first few names, then a count."""
    if len(ids) <= NAMES_SHOWN:
        return ", ".join(ids)
    return f"{', '.join(ids[:NAMES_SHOWN])} and {len(ids) - NAMES_SHOWN} more"


def nodes_word(count: int) -> str:
    """`1 node`, `4 nodes`."""
    return counted(count, "node")


def _context(request: PlanRequest, plan: TopologyPlan, why: Explanation) -> str:
    if request.context_override is not None:
        return "as asked for"
    larger = why.larger_context
    if larger is None:
        return "the model's native context"
    tried = f"{larger.context_length:,}"
    if larger.verdict is Verdict.DOES_NOT_FIT:
        return f"{tried} would miss {_missing(larger)}"
    return f"{tried} fits on {nodes_word(len(larger.stages))}, {_instead(larger, plan)}"


def _nodes(request: PlanRequest, plan: TopologyPlan, why: Explanation) -> str:
    count = len(plan.stages)
    chosen = f"{count} of {len(request.nodes)}"
    fewer = why.fewer_nodes
    if fewer is None:
        return chosen if count == 1 else f"{chosen}: min_nodes asks for {count}"
    less = count - 1
    if fewer.verdict is Verdict.DOES_NOT_FIT:
        return f"{chosen}: {less} would miss {_missing(fewer)}"
    return f"{chosen}: {less} would do, {_instead(fewer, plan)}"


def _missing(attempt: Attempt) -> str:
    short = [s.node_id for s in attempt.stages if s.remaining_bytes < 0]
    size = format_bytes(attempt.missing_bytes, is_need=True)
    return f"{size} on {nodes_word(len(short))} ({names(short)})"


def _instead(attempt: Attempt, plan: TopologyPlan) -> str:
    """What speaks against a candidate that fits: its estimate, else its margin."""
    theirs, ours = attempt.estimate_us, plan.estimate_us
    if theirs is not None and ours is not None and theirs > ours:
        return f"at {milliseconds(theirs)} a token instead of {milliseconds(ours)}"
    return "with less memory left on the fullest node"


def _lanes(request: PlanRequest) -> str:
    origin = "the default" if request.lanes_override is None else "as asked for"
    return f"{request.lanes} sharing one KV cache, {origin}"


def _network(request: PlanRequest, plan: TopologyPlan) -> str:
    target = request.target_tpot_us
    wanted = "" if target is None else f", target {milliseconds(target)}"
    if plan.estimate_us is None:
        judged = "" if target is None else ": cannot be judged"
        return f"no latency known{wanted}{judged}"
    count = len(plan.stages)
    each = milliseconds(plan.estimate_us // count)
    verdict = {None: "", True: ": met", False: ": MISSED"}[plan.target_met]
    return (
        f"{milliseconds(plan.estimate_us)} a token ({count} x {each}){wanted}{verdict}"
    )


def _notes(request: PlanRequest, plan: TopologyPlan) -> Iterator[str]:
    used = {stage.node_id for stage in plan.stages}
    unused = [n.node_id for n in request.nodes if n.node_id not in used]
    if unused:
        yield f"not needed: {names(unused)}"
    if plan.assumed_latency:
        yield (
            f"no latency known for {names(plan.assumed_latency)}: "
            "counted as the largest known one"
        )


def _held(outside: OutsideTensors, plan: TopologyPlan) -> Iterator[str]:
    """The matrices that are counted beside the layers."""
    for stage in plan.stages:
        held = outside.on_stage(stage.stage_index, len(plan.stages))
        large = [f"{name} ({format_bytes(size)})" for name, size in held if size >= MIB]
        if large:
            yield f"{stage.stage_id} also holds {', '.join(large)}"
