"""A plan as plain text: aligned columns, nothing drawn, nothing cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.memory_bar import percent_used
from skippyctl.reasons import decision_lines, milliseconds
from skippyd.units import counted, format_bytes


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skippyctl.planning import Outcome
    from skippyd.core.topology.explain import Attempt
    from skippyd.core.topology.plan import StageAssignment


STAGE_HEAD = (
    "stage", "node", "layers", "count", "used", "weights", "KV", "margin",
)  # fmt: skip
ATTEMPT_HEAD = ("context", "nodes", "verdict", "smallest margin", "missing", "network")


def plan_text(outcome: Outcome, *, explain: bool = False) -> str:
    """The outcome for a pipe or a log, ending without a newline."""
    return "\n".join(_blocks(outcome, explain=explain))


def _blocks(outcome: Outcome, *, explain: bool) -> Iterator[str]:
    yield headline(outcome)
    if outcome.refused is not None:
        yield f"refused ({outcome.refused.name}): {outcome.refused.message}"
        stages = outcome.refused.nearest
        if stages:
            yield "nearest arrangement:"
    else:
        stages = outcome.plan.stages if outcome.plan is not None else ()
    if stages:
        yield from columns([STAGE_HEAD, *map(stage_row, stages)])
    for label, sentence in decision_lines(outcome):
        yield f"{label}: {sentence}"
    if explain and outcome.explanation is not None:
        yield "candidates:"
        rows = map(attempt_row, outcome.explanation.attempts)
        yield from columns([ATTEMPT_HEAD, *rows])


def headline(outcome: Outcome) -> str:
    """The model in one line."""
    if outcome.request is None:
        return outcome.model_name
    model = outcome.request.model
    return (
        f"{outcome.model_name}: {counted(model.layer_count, 'layer')}, "
        f"{format_bytes(model.weight_bytes)} weights, "
        f"{format_bytes(model.kv_bytes_per_token)} KV a token"
    )


def stage_row(stage: StageAssignment) -> tuple[str, ...]:
    """The cells of `STAGE_HEAD` for one stage."""
    return (
        stage.stage_id,
        stage.node_id,
        f"{stage.layer_start}..{stage.layer_end}",
        str(stage.layer_end - stage.layer_start),
        f"{percent_used(stage)}%",
        format_bytes(stage.parameter_bytes),
        format_bytes(stage.kv_bytes),
        format_bytes(stage.remaining_bytes),
    )


def attempt_row(attempt: Attempt) -> tuple[str, ...]:
    """The cells of `ATTEMPT_HEAD` for one candidate."""
    missing, estimate = attempt.missing_bytes, attempt.estimate_us
    return (
        f"{attempt.context_length:,}",
        str(len(attempt.stages)),
        attempt.verdict.value,
        format_bytes(attempt.smallest_margin_bytes),
        format_bytes(missing, is_need=True) if missing else "-",
        "-" if estimate is None else milliseconds(estimate),
    )


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with every column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
