"""Where a document goes: one line of JSON, plain text for a pipe, styles on a terminal."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, TypeVar

from skippyctl.page import plain_text
from skippyctl.reading import written


if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable
    from typing import TextIO

    from skippyctl.page import Page

T = TypeVar("T")

EVENT = "skippy.event/1"
PIPE_COLUMNS = 120
"""What people can read when they page or mail it; scripts take --json, which has all."""


def json_line(document: object) -> str:
    """Write a document on one line, with ASCII only: it steers no terminal either."""
    keys = written(document)
    if keys.get("schema") == EVENT:
        # An event is written without the keys that it has no value for.
        keys = {key: value for key, value in keys.items() if value is not None}
    return json.dumps(keys, ensure_ascii=True)


def show(document: object, page: Page, arguments: argparse.Namespace) -> None:
    """Print a document on standard output in the form that suits it."""
    if arguments.json:
        print(json_line(document), flush=True)
    else:
        print_page(page, sys.stdout, arguments.color)


def print_page(page: Page, stream: TextIO, color: str) -> None:
    """Print a page on a stream."""
    if not wants_terminal(stream, color):
        print(plain_text(page, plain_width(stream)), file=stream, flush=True)
        return
    from skippyctl.page_terminal import (  # noqa: PLC0415 - costs 50 ms
        rich_page,
        terminal_console,
    )

    is_plain = not wants_colours(stream, color)
    console = terminal_console(stream, is_plain=is_plain)
    console.print(rich_page(page, console.width))
    stream.flush()


def plain_width(stream: TextIO) -> int:
    """Columns of a plain page: COLUMNS, else the dumb terminal's, else those of a pipe."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isascii() and wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    try:
        return os.get_terminal_size(stream.fileno()).columns or PIPE_COLUMNS
    except OSError:
        return PIPE_COLUMNS


def wants_terminal(stream: TextIO, color: str) -> bool:
    """Whether to lay a page out for people: on a terminal, or when colours are forced."""
    return wants_colours(stream, color) or (
        stream.isatty() and os.environ.get("TERM") != "dumb"
    )


def wants_colours(stream: TextIO, color: str) -> bool:
    """Whether to colour: the flag, then NO_COLOR, FORCE_COLOR, then the terminal."""
    if color != "auto":
        return color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def show_each(
    documents: Iterable[T],
    page_of: Callable[[T], Page],
    arguments: argparse.Namespace,
) -> None:
    """Show documents as they come: in place on a terminal, one after another else."""
    if arguments.json or not wants_terminal(sys.stdout, arguments.color):
        for each in documents:
            show(each, page_of(each), arguments)
        return
    from rich.live import Live  # noqa: PLC0415 - costs 60 ms

    from skippyctl.page_terminal import (  # noqa: PLC0415 - as above
        rich_page,
        terminal_console,
    )

    is_plain = not wants_colours(sys.stdout, arguments.color)
    console = terminal_console(is_plain=is_plain)
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for each in documents:
            live.update(rich_page(page_of(each), console.width), refresh=True)
