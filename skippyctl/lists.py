"""The commands that show one list of this node, once or again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from skippyctl.client import AdminClient
from skippyctl.output import show, show_each
from skippyd.errors import ExitCode


if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from skippyctl.page import Page

T = TypeVar("T")

EVERY_SECONDS = 1.0


def show_list(
    arguments: argparse.Namespace,
    ask: Callable[[AdminClient], T],
    page_of: Callable[[T], Page],
) -> ExitCode:
    """Ask for a document and show it; with `--watch` once a second, until interrupted."""
    with AdminClient(arguments.socket) as client:
        if arguments.watch:
            show_each(_again_and_again(client, ask), page_of, arguments)
        else:
            document = ask(client)
            show(document, page_of(document), arguments)
    return ExitCode.DONE


def now_unix_ms() -> int:
    """This moment, for the ages in a page."""
    return time.time_ns() // 1_000_000


def _again_and_again(
    client: AdminClient, ask: Callable[[AdminClient], T]
) -> Iterator[T]:
    while True:
        yield ask(client)
        time.sleep(EVERY_SECONDS)
