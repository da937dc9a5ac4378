"""A plan's memory map as an SVG file of its own: no fonts, scripts or links."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from skippyctl.memory_bar import full_length_bytes, memory_bar, percent_used
from skippyctl.reasons import decision_lines
from skippyctl.render_plain import headline
from skippyd.units import format_bytes


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyctl.planning import Outcome
    from skippyd.core.topology.plan import StageAssignment


WIDTH, BAR_LENGTH, BAR_HEIGHT, ROW_HEIGHT = 960, 520, 22, 46
LEFT, TOP, LINE_HEIGHT = 24, 84, 22
BAR_LEFT = 230
LETTERS_A_LINE = 125
COLOURS = {
    "weights": "#3b6fb6",
    "KV": "#4fb3bf",
    "free": "#e3e6ea",
    "missing": "#c8322b",
}


def plan_svg(outcome: Outcome) -> str:
    """The plan, or what came nearest to one, as an SVG document."""
    stages = _stages(outcome)
    words = _words(outcome)
    words_top = TOP + ROW_HEIGHT * len(stages) + LINE_HEIGHT
    height = words_top + LINE_HEIGHT * len(words) + LEFT
    lines = [
        _opening(height),
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 34, headline(outcome), size=18),
        *_legend(),
    ]
    for index, stage in enumerate(stages):
        lines += _row(stage, TOP + ROW_HEIGHT * index, full_length_bytes(stages))
    lines += [
        _text(LEFT, words_top + LINE_HEIGHT * index, sentence)
        for index, sentence in enumerate(words)
    ]
    return "\n".join([*lines, "</svg>", ""])


def _opening(height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="14">'
    )


def _stages(outcome: Outcome) -> tuple[StageAssignment, ...]:
    if outcome.plan is not None:
        return outcome.plan.stages
    return outcome.refused.nearest if outcome.refused is not None else ()


def _words(outcome: Outcome) -> list[str]:
    if outcome.refused is not None:
        return list(_wrapped(f"refused: {outcome.refused.message}"))
    return [
        line
        for label, sentence in decision_lines(outcome)
        for line in _wrapped(f"{label}: {sentence}")
    ]


def _wrapped(sentence: str) -> Iterator[str]:
    line = ""
    for word in sentence.split(" "):
        if line and len(line) + len(word) >= LETTERS_A_LINE:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _text(
    x: int, y: int, content: str, *, size: int = 14, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">'
        f"{escape(content)}</text>"
    )


def _legend() -> Iterator[str]:
    for index, (name, colour) in enumerate(COLOURS.items()):
        x = BAR_LEFT + 110 * index
        yield f'<rect x="{x}" y="50" width="14" height="14" fill="{colour}"/>'
        yield _text(x + 20, 62, name)


def _margin(stage: StageAssignment) -> str:
    left = stage.remaining_bytes
    if left < 0:
        return f"{format_bytes(-left, is_need=True)} short"
    return f"{format_bytes(left)} left"


def _row(stage: StageAssignment, top: int, largest_bytes: int) -> Iterator[str]:
    bar = memory_bar(stage, length=BAR_LENGTH, largest_bytes=largest_bytes)
    count = stage.layer_end - stage.layer_start
    yield _text(LEFT, top + 14, f"{stage.stage_index}  {stage.node_id}")
    yield _text(
        LEFT, top + 30, f"layers {stage.layer_start}..{stage.layer_end} ({count})",
        size=12,
    )  # fmt: skip
    x = BAR_LEFT
    parts = (bar.weights, bar.kv, bar.free, bar.missing)
    for part, colour in zip(parts, COLOURS.values(), strict=True):
        yield (
            f'<rect x="{x}" y="{top}" width="{part}" height="{BAR_HEIGHT}" '
            f'fill="{colour}"/>'
        )
        x += part
    yield _text(
        WIDTH - LEFT, top + 15, _margin(stage),
        anchor="end",
    )  # fmt: skip
    yield _text(
        BAR_LEFT, top + 36, f"{format_bytes(stage.parameter_bytes)} weights, "
        f"{format_bytes(stage.kv_bytes)} KV, {percent_used(stage)}% used", size=11,
    )  # fmt: skip
