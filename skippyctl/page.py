"""What a command shows, before it is known where: lines and grids of toned pieces.

Pure. Views build pages from documents; a page is written as plain text here, and for a
terminal in `page_terminal`. Foreign texts become harmless on the way in.
"""

from __future__ import annotations

import unicodedata
from enum import Enum
from typing import TYPE_CHECKING

import attrs

from skippyctl.words import clean_line


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GAP = "  "


class Tone(Enum):
    """What a piece means; a terminal shows it as a style."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    GOOD = "good"
    BUSY = "busy"
    WARNING = "warning"
    BAD = "bad"
    ALARM = "alarm"


@attrs.frozen
class Piece:
    """A bit of text; on one line, and harmless."""

    text: str = attrs.field(converter=clean_line)
    tone: Tone = Tone.PLAIN


@attrs.frozen
class Line:
    """Pieces in a row; a terminal may wrap them, a pipe gets them whole."""

    pieces: tuple[Piece, ...] = ()
    indent: int = 0


@attrs.frozen(kw_only=True)
class Grid:
    """Rows of cells in aligned columns.

    Args:
        head: Names of the columns; empty for none.
        rows: Cells, as many as there are columns.
        right: Columns that are aligned to the right.
        wraps: The column that a narrow terminal may wrap.
        drops: Columns that a narrow terminal does without, the first one first.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[Piece, ...], ...]
    right: frozenset[str] = frozenset()
    wraps: str | None = None
    drops: tuple[str, ...] = ()


Block = Line | Grid
Page = tuple[Block, ...]


def line(*texts: str | Piece, tone: Tone = Tone.PLAIN, indent: int = 0) -> Line:
    """Build a line; plain texts get its tone."""
    pieces = (t if isinstance(t, Piece) else Piece(t, tone) for t in texts)
    return Line(tuple(pieces), indent)


def paragraph(text: str, *, tone: Tone = Tone.PLAIN, indent: int = 0) -> Iterator[Line]:
    """One line for each line of a text."""
    for each in text.splitlines():
        yield line(each.rstrip(), tone=tone, indent=indent)


def grid(
    head: tuple[str, ...],
    rows: Iterable[tuple[str | Piece, ...]],
    *,
    right: Iterable[str] = (),
    wraps: str | None = None,
    drops: tuple[str, ...] = (),
) -> Grid:
    """Build a grid; texts become plain pieces."""
    cells = (
        tuple(cell if isinstance(cell, Piece) else Piece(cell) for cell in row)
        for row in rows
    )
    return Grid(
        head=head,
        rows=tuple(cells),
        right=frozenset(right),
        wraps=wraps,
        drops=drops,
    )


def fitted(block: Grid, width: int) -> Grid:
    """The grid without as many of its droppable columns as a width asks for."""
    for name in block.drops:
        if _width(block) <= width:
            break
        block = _without(block, block.head.index(name))
    return block


def _width(block: Grid) -> int:
    rows = [block.head, *(tuple(cell.text for cell in row) for row in block.rows)]
    widths = [max(map(cell_width, column)) for column in zip(*rows, strict=True)]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _without(block: Grid, place: int) -> Grid:
    return attrs.evolve(
        block,
        head=block.head[:place] + block.head[place + 1 :],
        rows=tuple(row[:place] + row[place + 1 :] for row in block.rows),
    )


def fields(pairs: Iterable[tuple[str, str | Piece]]) -> Grid:
    """Build a grid of names and values, without a head."""
    rows = ((Piece(name, Tone.DIM), value) for name, value in pairs)
    return attrs.evolve(grid(("name", "value"), rows, wraps="value"), head=())


def plain_text(page: Page, width: int | None = None) -> str:
    """Write a page for a pipe or a log: nothing drawn, nothing cut off, no colours.

    Args:
        page: What to write.
        width: Columns that grids do without what may be dropped for; None drops nothing.
    """
    return "\n".join(
        text
        for block in page
        for text in _lines(
            fitted(block, width) if width and isinstance(block, Grid) else block
        )
    )


def cell_width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(
        0
        if unicodedata.combining(each)
        else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Line):
        text = "".join(piece.text for piece in block.pieces)
        yield (" " * block.indent + text).rstrip()
        return
    rows = [tuple(cell.text for cell in row) for row in block.rows]
    if block.head:
        rows.insert(0, block.head)
    if not rows:
        return
    widths = [max(map(cell_width, column)) for column in zip(*rows, strict=True)]
    is_right = [name in block.right for name in block.head] or [False] * len(widths)
    for row in rows:
        yield GAP.join(map(_aligned, row, widths, is_right)).rstrip()


def _aligned(text: str, width: int, is_right: bool) -> str:
    padding = " " * (width - cell_width(text))
    return padding + text if is_right else text + padding
