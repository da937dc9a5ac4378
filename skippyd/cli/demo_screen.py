"""What the demo shows a person: progress, the answer as it comes, a table, a verdict."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from skippyd.units import format_bytes


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from skippyd.proving.chain import ChainPlan
    from skippyd.proving.demo import Answer, Proof, StageFigures

BAR_WIDTH = 24


class DemoScreen:
    """Writes to a terminal prettily and to anything else plainly.

    Args:
        out: Where the answer and the table go.
        talk: Where progress goes; standard error when left out.
    """

    def __init__(self, out: TextIO, talk: TextIO | None = None) -> None:
        self._out = Console(file=out, highlight=False, soft_wrap=True)
        self._talk = Console(file=talk, stderr=talk is None, highlight=False)
        self._is_quiet = not self._talk.is_terminal
        self._wrap = WordWrap(self._out.width)

    def _show(self, text: str) -> None:
        self._out.print(Text(text), end="")
        self._out.file.flush()

    @contextlib.contextmanager
    def loading(self, plan: ChainPlan) -> Iterator[Callable[[int, float], None]]:
        """Show one bar a stage while they load; gives the function to report to."""
        ranges = [_range(start, end) for start, end in itertools.pairwise(plan.bounds)]
        stages = "1 stage" if plan.stage_count == 1 else f"{plan.stage_count} stages"
        self._talk.print(
            Text(plan.model_id, "bold"),
            Text(f"in {stages}: layers {' | '.join(ranges)}"),
        )
        progress = Progress(
            TextColumn("  {task.description}"),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.percentage:>3.0f} %"),
            console=self._talk,
            transient=True,
            disable=self._is_quiet,
        )
        with progress:
            tasks = [
                progress.add_task(f"stage-{index}  layers {layers}", total=1.0)
                for index, layers in enumerate(ranges)
            ]
            yield lambda index, share: progress.update(tasks[index], completed=share)

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Say what is waited for."""
        if self._is_quiet:
            yield
            return
        with self._talk.status(f"{what} ...", spinner="line"):
            yield

    def question(self, prompt: str) -> None:
        """Show the question."""
        self._out.print(Text("\n? ", "bold cyan"), Text(prompt), sep="")

    def text(self, piece: str) -> None:
        """Show a piece of the answer at once; in a terminal up to its last whole word."""
        shown = printable(piece)
        if self._out.is_terminal:
            shown = self._wrap.add(shown)
        self._show(shown)

    def stages(self, figures: Sequence[StageFigures]) -> None:
        """Show one line per stage."""
        self._show(self._wrap.end())
        self._out.print("\n")
        if not self._out.is_terminal:
            for figure in figures:
                self._out.print(Text(_plain(figure)))
            return
        table = Table(
            box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0)
        )
        for name in ("stage", "layers", "memory", "ms/token", "pid"):
            table.add_column(name, justify="left" if name == "stage" else "right")
        for figure in figures:
            table.add_row(*_cells(figure))
        self._out.print(Padding(table, (0, 0, 1, 0)))

    def verdict(self, answer: Answer, proof: Proof) -> None:
        """Show whether the answer is the unsplit model's."""
        if proof.is_identical:
            words = Text("IDENTICAL to the unsplit model", "bold green")
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
                f"{answer.tpot_ms:.1f} ms a token (unsplit: "
                f"{proof.unsplit.tpot_ms:.1f} ms)"
            )
        )

    def serving(self, base_url: str, model_id: str) -> None:
        """Say where clients connect."""
        self._out.print(
            Text("\nOpenAI address  "),
            Text(base_url, "bold"),
            Text(f"\nmodel           {model_id}\nCtrl-C ends all stages"),
            sep="",
        )
        self._out.file.flush()


class WordWrap:
    """Breaks a text that comes in pieces between words, not within them.

    Args:
        width: Columns of a line.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._column = 0
        self._word = ""

    def add(self, piece: str) -> str:
        """Text that may be shown now: all but a word that may go on."""
        shown = []
        for letter in piece:
            if not letter.isspace():
                self._word += letter
                continue
            shown.append(self.end())
            is_break = letter == "\n" or self._column + 1 >= self._width
            self._column = 0 if is_break else self._column + 1
            shown.append("\n" if is_break else letter)
        return "".join(shown)

    def end(self) -> str:
        """The word that was held back."""
        word, self._word = self._word, ""
        width = cell_len(word)
        breaks = self._column > 0 and self._column + width > self._width
        self._column = width if breaks else self._column + width
        return f"\n{word}" if breaks else word


def printable(text: str) -> str:
    """Text of a model without what would steer a terminal, such as escapes."""
    return "".join(
        letter
        if letter.isprintable() or letter in "\n\t"
        else "\N{REPLACEMENT CHARACTER}"
        for letter in text
    )


def _cells(figure: StageFigures) -> tuple[str, ...]:
    return (
        figure.stage_id,
        _range(figure.layer_start, figure.layer_end),
        format_bytes(figure.resident_bytes),
        f"{figure.ms_per_token:.2f}",
        str(figure.pid),
    )


def _plain(figure: StageFigures) -> str:
    stage, layers, memory, speed, pid = _cells(figure)
    return f"{stage}  layers {layers}  {memory}  {speed} ms per token  pid {pid}"


def _range(start: int, end: int) -> str:
    return f"{start}-{end - 1}" if end - start > 1 else f"{start}"
