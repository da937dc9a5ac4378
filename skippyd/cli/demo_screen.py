"""What the demo shows a person: progress, the answer as it comes, a table, a verdict."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from skippyd.units import MIB


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from skippyd.proving.chain import ChainPlan
    from skippyd.proving.demo import Answer, Proof, StageFigures


class DemoScreen:
    """Writes to a terminal prettily and to anything else plainly.

    Args:
        out: Where the answer and the table go.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = Console(file=out, highlight=False, soft_wrap=True)
        self._talk = Console(stderr=True, highlight=False)

    @contextlib.contextmanager
    def loading(self, plan: ChainPlan) -> Iterator[Callable[[int, float], None]]:
        """Show one bar a stage while they load; gives the function to report to."""
        self._talk.print(
            Text(f"{plan.model_id}: {plan.stage_count} stages, layers "),
            Text(" + ".join(_range(a, b) for a, b in _pairs(plan.bounds)), "bold"),
            sep="",
        )
        progress = Progress(
            TextColumn("  {task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f} %"),
            console=self._talk,
            transient=True,
            disable=not self._talk.is_terminal,
        )
        with progress:
            tasks = [
                progress.add_task(f"stage-{index}", total=1.0)
                for index in range(plan.stage_count)
            ]
            yield lambda index, share: progress.update(tasks[index], completed=share)

    def question(self, prompt: str) -> None:
        """Show the question."""
        self._out.print(Text("? ", "bold cyan"), Text(prompt), sep="")

    def text(self, piece: str) -> None:
        """Show a piece of the answer at once."""
        self._out.print(Text(piece), end="")
        self._out.file.flush()

    def stages(self, figures: Sequence[StageFigures]) -> None:
        """Show one line per stage."""
        self._out.print("\n")
        if not self._out.is_terminal:
            for figure in figures:
                self._out.print(Text(_plain(figure)))
            return
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in ("stage", "layers", "memory", "ms per token", "pid"):
            table.add_column(name, justify="left" if name == "stage" else "right")
        for figure in figures:
            table.add_row(*_cells(figure))
        self._out.print(table)

    @contextlib.contextmanager
    def proving(self) -> Iterator[None]:
        """Say that the reference runs."""
        with self._talk.status("asking the unsplit model the same ..."):
            yield

    def verdict(self, answer: Answer, proof: Proof) -> None:
        """Show whether the answer is the unsplit model's."""
        if proof.is_identical:
            words = Text("identical to the unsplit model", "bold green")
        else:
            words = Text("DIFFERS from the unsplit model", "bold red")
        difference = proof.max_abs_difference
        words.append(
            f": {proof.rows} rows of logits, largest difference "
            f"{'not comparable' if difference is None else difference}",
            "default",
        )
        self._out.print(words)
        self._out.print(
            Text(
                f"first token after {answer.ttft_ms:.0f} ms, then "
                f"{answer.tpot_ms:.1f} ms a token (unsplit {proof.unsplit.tpot_ms:.1f})"
            )
        )

    def serving(self, base_url: str, model_id: str) -> None:
        """Say where clients connect."""
        self._out.print(
            Text("OpenAI address "),
            Text(base_url, "bold"),
            Text(f"  model {model_id}; Ctrl-C ends all stages"),
            sep="",
        )


def _cells(figure: StageFigures) -> tuple[str, ...]:
    return (
        figure.stage_id,
        _range(figure.layer_start, figure.layer_end),
        f"{figure.resident_bytes / MIB:.0f} MiB",
        f"{figure.ms_per_token:.2f}",
        str(figure.pid),
    )


def _plain(figure: StageFigures) -> str:
    stage, layers, memory, speed, pid = _cells(figure)
    return f"{stage}  layers {layers}  {memory}  {speed} ms per token  pid {pid}"


def _range(start: int, end: int) -> str:
    return f"{start}-{end - 1}" if end - start > 1 else f"{start}"


def _pairs(bounds: Sequence[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(bounds))
