"""The commands that show one list of this node, once or again and again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from skippyctl.client import AdminClient
from skippyctl.output import show, show_each
from skippyd.errors import ExitCode


if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

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


def show_named_list(
    arguments: argparse.Namespace,
    ask: Callable[[AdminClient], T],
    page_of: Callable[[T, Mapping[str, str]], Page],
) -> ExitCode:
    """As `show_list`, for a page that calls nodes by their names."""
    names: dict[str, str] = {}

    def ask_both(client: AdminClient) -> T:
        if not arguments.json:
            names.update(node_names(client))
        return ask(client)

    return show_list(arguments, ask_both, lambda document: page_of(document, names))


def node_names(client: AdminClient) -> dict[str, str]:
    """What people call the nodes that the daemon knows, by id."""
    return {row.node_id: row.name for row in client.nodes().items}


def now_unix_ms() -> int:
    """This moment, for the ages in a page."""
    return time.time_ns() // 1_000_000


def _again_and_again(
    client: AdminClient, ask: Callable[[AdminClient], T]
) -> Iterator[T]:
    while True:
        yield ask(client)
        time.sleep(EVERY_SECONDS)
