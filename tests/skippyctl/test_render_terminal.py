from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from skippyctl.planning import Outcome, Refused, Wishes, plan_from_files
from skippyctl.render_terminal import plan_view
from support.nodes_files import QWEN, nodes, write_nodes


if TYPE_CHECKING:
    from pathlib import Path


def shown(
    outcome: Outcome, *, width: int = 100, explain: bool = False, colour: bool = False
) -> list[str]:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system="standard" if colour else None,
        highlight=False,
        markup=False,
    )
    console.print(plan_view(outcome, width=width, explain=explain))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def plan(folder: Path, text: str) -> Outcome:
    return plan_from_files(write_nodes(folder, text), Wishes())


def test_each_stage_is_one_row_with_a_bar(tmp_path: Path) -> None:
    lines = shown(plan(tmp_path, QWEN + nodes(*["80GiB"] * 5)))

    assert lines[0] == "qwen-480b: 62 layers, 293 GiB weights, 128 KiB KV a token"
    assert lines[2].split() == [
        "stage", "node", "layers", "count", "memory", "used", "weights", "KV", "margin",
    ]  # fmt: skip
    assert lines[3].startswith("stage-0  n0     0..13     13  ███")
    assert lines[3].endswith("86%  61.6 GiB  6.71 GiB  11.6 GiB")
    assert lines[3].count("█") + lines[3].count("▓") + lines[3].count("·") == 32
    assert [line[:7] for line in lines[3:8]] == [f"stage-{i}" for i in range(5)]
    assert "█ weights   ▓ KV cache   · free" in lines
    assert any(line.startswith("context  262,144 tokens") for line in lines)


@pytest.mark.parametrize("width", [60, 80, 88, 100, 132, 200])
def test_every_row_fits_the_terminal(tmp_path: Path, width: int) -> None:
    lines = shown(
        plan(tmp_path, QWEN + nodes(*["80GiB"] * 5)), width=width, explain=True
    )

    assert max(map(len, lines)) <= width
    assert sum(line.startswith("stage-") for line in lines) == 5
    assert all("GiB" in line for line in lines if line.startswith("stage-"))


def test_a_narrow_terminal_keeps_the_bar_and_drops_what_it_shows(
    tmp_path: Path,
) -> None:
    lines = shown(plan(tmp_path, QWEN + nodes(*["80GiB"] * 5)), width=80)
    assert "weights" not in lines[2]
    assert lines[3].count("█") >= 20


def test_a_long_name_is_folded_not_cut(tmp_path: Path) -> None:
    name = "".join(f"rack{index}-" for index in range(20))
    text = QWEN + nodes(*["80GiB"] * 5).replace('"n0"', f'"{name}"')
    lines = shown(plan(tmp_path, text), width=80)

    rows = lines[3 : lines.index("█ weights   ▓ KV cache   · free")]
    folded = "".join(row[9:].split("  ")[0] for row in rows)
    assert name in folded


def test_a_refusal_shows_what_is_missing(tmp_path: Path) -> None:
    lines = shown(plan(tmp_path, QWEN + nodes(*["70GiB"] * 4)))

    assert "!" in lines[3]
    assert "-7.93 GiB" in lines[3]
    assert "█ weights   ▓ KV cache   · free   ! missing" in lines
    assert any(line.startswith("Refused (NoValidTopology): ") for line in lines)
    assert "  add a node with 29.3 GiB usable;" in lines


def test_explain_marks_the_chosen_candidate(tmp_path: Path) -> None:
    outcome = plan(tmp_path, QWEN + nodes(*["80GiB"] * 5))
    chosen = [line for line in shown(outcome, explain=True) if "chosen" in line]
    plain = shown(outcome)

    assert len(chosen) == 1
    assert chosen[0].split()[:3] == ["262,144", "5", "chosen"]
    assert not any("chosen" in line for line in plain)


def test_colours_mark_the_tightest_node_and_a_missed_target(tmp_path: Path) -> None:
    text = QWEN + "[plan]\ntarget_tpot_ms = 1\n"
    outcome = plan(tmp_path, text + nodes(*["80GiB"] * 5, more="latency_ms = 10"))
    lines = "\n".join(shown(outcome, colour=True))

    assert "\x1b[1;31m" in lines
    assert "MISSED" in lines


def test_names_are_never_markup() -> None:
    refused = Refused(name="NotOffered", message="[bold]x[/bold]")
    lines = shown(Outcome(model_name="[red]m[/red]", refused=refused))

    assert lines[0] == "[red]m[/red]"
    assert lines[-1] == "Refused (NotOffered): [bold]x[/bold]"
