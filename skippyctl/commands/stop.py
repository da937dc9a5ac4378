"""`skippyctl stop`: end stages of this node at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "stage", nargs="?", metavar="STAGE", help="the stage, as status names it"
    )
    which.add_argument("--all", action="store_true", help="every stage of this node")
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Stop them; its coordinator notices and replans or withdraws."""
    from skippyctl.changes import change  # noqa: PLC0415 - lazy
    from skippyd.admin.wishes import Stop  # noqa: PLC0415 - lazy

    wish = Stop(stage_id=None if arguments.all else arguments.stage)
    return change(arguments, lambda client: client.stop(wish))
