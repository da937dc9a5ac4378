"""The document `skippy.plan/1`: one line for scripts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from skippyd.units import ceil_div


if TYPE_CHECKING:
    from skippyctl.planning import Outcome, Refused
    from skippyd.core.topology.explain import Attempt
    from skippyd.core.topology.plan import StageAssignment, TopologyPlan


PLAN_SCHEMA = "skippy.plan/1"


def plan_json(outcome: Outcome, *, explain: bool = False) -> str:
    """The outcome as one line.

    Args:
        outcome: A plan or a refusal.
        explain: Add the candidates that were looked at.
    """
    if outcome.refused is not None:
        return _line(_refusal(outcome.refused))
    assert outcome.plan is not None
    document = _plan(outcome.plan) | {"model_id": outcome.model_name}
    if explain and outcome.explanation is not None:
        document["candidates"] = [_attempt(a) for a in outcome.explanation.attempts]
    return _line(document)


def _line(document: dict[str, object]) -> str:
    return json.dumps(document, ensure_ascii=True)


def _refusal(refused: Refused) -> dict[str, object]:
    return {
        "schema": PLAN_SCHEMA,
        "refused": refused.name,
        "message": refused.message,
        **refused.numbers,
    }


def _plan(plan: TopologyPlan) -> dict[str, object]:
    return {
        "schema": PLAN_SCHEMA,
        "context_length": plan.context_length,
        "lanes": plan.lanes,
        "stages": [_stage(stage) for stage in plan.stages],
        "estimated_decode_network_ms_per_token": _whole_ms(plan.estimate_us),
        "estimated_decode_network_us_per_token": plan.estimate_us,
        "target_met": plan.target_met,
        "assumed_latency_node_ids": list(plan.assumed_latency),
    }


def _stage(stage: StageAssignment) -> dict[str, object]:
    return {
        "stage_id": stage.stage_id,
        "stage_index": stage.stage_index,
        "node_id": stage.node_id,
        "layer_start": stage.layer_start,
        "layer_end": stage.layer_end,
        "parameter_bytes": stage.parameter_bytes,
        "kv_bytes": stage.kv_bytes,
        "remaining_bytes": stage.remaining_bytes,
    }


def _attempt(attempt: Attempt) -> dict[str, object]:
    return {
        "context_length": attempt.context_length,
        "stage_count": len(attempt.stages),
        "node_ids": [stage.node_id for stage in attempt.stages],
        "smallest_margin_bytes": attempt.smallest_margin_bytes,
        "missing_bytes": attempt.missing_bytes,
        "estimated_decode_network_ms_per_token": _whole_ms(attempt.estimate_us),
        "verdict": attempt.verdict.name.lower(),
    }


def _whole_ms(microseconds: int | None) -> int | None:
    """Whole milliseconds, rounded up: documents carry integers."""
    return None if microseconds is None else ceil_div(microseconds, 1000)
