"""`skippyctl telemetry`: rates and times of the last minute, and the newest spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common, whole


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode

SPANS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--follow", action="store_true", help="go on, once a second with the new spans"
    )
    parser.add_argument(
        "--spans",
        type=whole,
        default=SPANS,
        metavar="N",
        help=f"show so many of the newest spans (default {SPANS})",
    )
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Show the figures."""
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.output import show, show_each  # noqa: PLC0415 - lazy
    from skippyctl.telemetry_view import telemetry_page  # noqa: PLC0415 - lazy
    from skippyd.admin.wishes import After  # noqa: PLC0415 - lazy
    from skippyd.errors import ExitCode  # noqa: PLC0415 - lazy

    wish = After(limit=arguments.spans)
    with AdminClient(arguments.socket) as client:
        if arguments.follow:
            show_each(
                client.follow_telemetry(wish),
                lambda each: telemetry_page(each, arguments.spans),
                arguments,
            )
        else:
            telemetry = client.telemetry(wish)
            show(telemetry, telemetry_page(telemetry, arguments.spans), arguments)
    return ExitCode.DONE
