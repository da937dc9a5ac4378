"""`skippyctl drain`: let this node take no new stage, and give up those it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--undo", action="store_true", help="take stages again")
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Drain, or take stages again."""
    from skippyctl.changes import change  # noqa: PLC0415 - lazy
    from skippyd.admin.wishes import Drain  # noqa: PLC0415 - lazy

    wish = Drain(is_undone=arguments.undo)
    return change(arguments, lambda client: client.drain(wish))
