"""`skippyctl logs`: the newest lines of the daemon's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common, positive


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode

LINES = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--follow", "-f", action="store_true", help="go on with each line as it comes"
    )
    parser.add_argument(
        "--lines",
        "-n",
        type=positive,
        default=LINES,
        metavar="N",
        help=f"begin with so many of the newest lines (default {LINES})",
    )
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Show the lines."""
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.list_views import log_page  # noqa: PLC0415 - lazy
    from skippyctl.output import show  # noqa: PLC0415 - lazy
    from skippyd.admin.wishes import After  # noqa: PLC0415 - lazy
    from skippyd.errors import ExitCode  # noqa: PLC0415 - lazy

    wish = After(limit=arguments.lines)
    with AdminClient(arguments.socket) as client:
        pages = client.follow_logs(wish) if arguments.follow else (client.logs(wish),)
        for logs in pages:
            if arguments.json or logs.items or logs.missed:
                show(logs, log_page(logs), arguments)
    return ExitCode.DONE
