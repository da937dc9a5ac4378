"""`skippyctl watch`: the steps of deployments, from any point that is still kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common, whole


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="of this model only")
    parser.add_argument(
        "--after",
        type=whole,
        default=0,
        metavar="N",
        help="events with a greater sequence number (default: all that are kept)",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="end with the first deployment or withdrawal that ends, and its exit code; "
        "dry runs end nothing, nor do failed attempts as long as the model is wanted",
    )
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Show events until interrupted, or with --once until a final one."""
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.following import follow  # noqa: PLC0415 - lazy
    from skippyd.admin.wishes import WatchEvents  # noqa: PLC0415 - lazy

    wish = WatchEvents(after=arguments.after, model_id=arguments.model)
    with AdminClient(arguments.socket) as client:
        return follow(client, arguments, wish, ends_when_final=arguments.once)
