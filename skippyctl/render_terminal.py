"""A plan for a terminal: a memory bar for each stage, then why it is so.

Pure: values in, rich renderables out. Names from files are `Text`, never markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rich.console import Group
from rich.table import Table
from rich.text import Text

from skippyctl.memory_bar import full_length_bytes, memory_bar
from skippyctl.reasons import decision_lines
from skippyctl.render_plain import (
    ATTEMPT_HEAD,
    STAGE_HEAD,
    attempt_row,
    headline,
    stage_row,
)
from skippyd.core.topology.explain import Verdict


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from skippyctl.planning import Outcome
    from skippyd.core.topology.explain import Explanation
    from skippyd.core.topology.plan import StageAssignment


WEIGHTS, KV, FREE, MISSING = "blue", "cyan", "bright_black", "bold red"
BAR_SHORTEST, BAR_LONGEST, GAP = 20, 48, 2


def plan_view(outcome: Outcome, *, width: int, explain: bool = False) -> RenderableType:
    """The outcome as something rich can print.

    Args:
        outcome: A plan or a refusal.
        width: Columns of the terminal.
        explain: Add the candidates that were looked at.
    """
    return Group(*_parts(outcome, width, explain=explain))


def _parts(outcome: Outcome, width: int, *, explain: bool) -> Iterator[RenderableType]:
    yield Text(headline(outcome), style="bold")
    yield Text()
    if outcome.plan is not None:
        yield _stages(outcome.plan.stages, width)
        yield Text()
        yield _decisions(outcome)
    if outcome.refused is not None:
        yield from _refusal(outcome, width)
    if explain and outcome.explanation is not None:
        yield Text()
        yield _attempts(outcome.explanation)


def _refusal(outcome: Outcome, width: int) -> Iterator[RenderableType]:
    refused = outcome.refused
    assert refused is not None
    if refused.nearest:
        yield _stages(refused.nearest, width)
        yield Text()
    message = Text(f"Refused ({refused.name}): ", style="bold red")
    message.append(refused.message.replace("; ", ";\n  "), style="not bold default")
    yield message


def _stages(stages: tuple[StageAssignment, ...], width: int) -> RenderableType:
    rows = [stage_row(stage) for stage in stages]
    names: tuple[str, ...] = STAGE_HEAD
    length = _bar_length(rows, names, width)
    if length < BAR_SHORTEST:
        # The bar shows weights and KV cache; the columns only repeat them.
        names = tuple(name for name in STAGE_HEAD if name not in {"weights", "KV"})
        length = max(BAR_SHORTEST, _bar_length(rows, names, width))
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in names:
        if name == "used":
            table.add_column("memory", no_wrap=True, min_width=length)
        justify = _justify(name)
        table.add_column(name, justify=justify, overflow="fold", no_wrap=name != "node")
    largest = full_length_bytes(stages)
    tightest = min(stage.remaining_bytes for stage in stages)
    for stage, row in zip(stages, rows, strict=True):
        is_tightest = stage.remaining_bytes == tightest
        cells: list[Text] = []
        for name, cell in zip(STAGE_HEAD, row, strict=True):
            if name == "used":
                cells.append(_bar(stage, length, largest))
            if name in names:
                cells.append(_cell(name, cell, stage, is_tightest=is_tightest))
        table.add_row(*cells)
    return Group(table, Text(), _legend(is_short=tightest < 0))


def _bar_length(rows: Sequence[Sequence[str]], names: Sequence[str], width: int) -> int:
    """Columns left for the bar beside the named ones."""
    taken = 0
    for name, *cells in zip(STAGE_HEAD, *rows, strict=True):
        if name in names:
            taken += max(len(name), *map(len, cells)) + GAP
    return min(BAR_LONGEST, width - taken - GAP)


def _justify(name: str) -> Literal["left", "right"]:
    return "left" if name in {"stage", "node"} else "right"


def _cell(name: str, cell: str, stage: StageAssignment, *, is_tightest: bool) -> Text:
    if name != "margin":
        return Text(cell)
    if stage.remaining_bytes < 0:
        return Text(cell, style=MISSING)
    return Text(cell, style="bold" if is_tightest else "")


def _legend(*, is_short: bool) -> Text:
    legend = Text.assemble(
        ("█", WEIGHTS), " weights   ", ("▓", KV), " KV cache   ", ("·", FREE), " free",
    )  # fmt: skip
    if is_short:
        legend.append("   ").append("!", style=MISSING).append(" missing")
    return legend


def _bar(stage: StageAssignment, length: int, largest_bytes: int) -> Text:
    bar = memory_bar(stage, length=length, largest_bytes=largest_bytes)
    return Text.assemble(
        ("█" * bar.weights, WEIGHTS),
        ("▓" * bar.kv, KV),
        ("·" * bar.free, FREE),
        ("!" * bar.missing, MISSING),
    )


def _decisions(outcome: Outcome) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, sentence in decision_lines(outcome):
        style = MISSING if sentence.endswith("MISSED") else ""
        table.add_row(label, Text(sentence, style=style))
    return table


def _attempts(explanation: Explanation) -> RenderableType:
    styles = {
        Verdict.CHOSEN: "bold green",
        Verdict.FITS: "",
        Verdict.DOES_NOT_FIT: "red",
    }
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in ATTEMPT_HEAD:
        table.add_column(name, justify="left" if name == "verdict" else "right")
    for attempt in explanation.attempts:
        table.add_row(*attempt_row(attempt), style=styles[attempt.verdict])
    return table
