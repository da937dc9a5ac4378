"""A page on a terminal: the same lines and grids, with styles, by rich."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from skippyctl.page import Line, Tone, fitted


if TYPE_CHECKING:
    from typing import TextIO

    from rich.console import RenderableType

    from skippyctl.page import Block, Grid, Page, Piece

STYLES = {
    Tone.PLAIN: "",
    Tone.DIM: "dim",
    Tone.STRONG: "bold",
    Tone.GOOD: "green",
    Tone.BUSY: "cyan",
    Tone.WARNING: "yellow",
    Tone.BAD: "bold red",
    Tone.ALARM: "bold white on red",
}


def rich_page(page: Page, width: int) -> RenderableType:
    """The page as something rich can print on so many columns."""
    return Group(*(_block(block, width) for block in page))


def terminal_console(
    stream: TextIO | None = None, *, is_plain: bool = False
) -> Console:
    """A console that shows texts as they are: no markup, no emoji, no highlighting."""
    return Console(
        file=stream or sys.stdout,
        force_terminal=True,
        color_system=None if is_plain or _is_dumb() else "auto",
        highlight=False,
        emoji=False,
        markup=False,
    )


def _is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"


def _block(block: Block, width: int) -> RenderableType:
    if isinstance(block, Line):
        text = Text.assemble(*((p.text, STYLES[p.tone]) for p in block.pieces))
        return Padding(text, (0, 0, 0, block.indent)) if block.indent else text
    return _table(fitted(block, width))


def _table(block: Grid) -> Table:
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        header_style="dim",
        show_header=bool(block.head),
    )
    columns = len(block.rows[0]) if block.rows else len(block.head)
    for place in range(columns):
        name = block.head[place] if block.head else ""
        is_last = place == columns - 1
        wraps = name == block.wraps if block.head else is_last
        table.add_column(
            name,
            justify="right" if name in block.right else "left",
            overflow="fold",
            no_wrap=not wraps,
        )
    for row in block.rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(piece: Piece) -> Text:
    return Text(piece.text, style=STYLES[piece.tone])
