"""`skippyctl withdraw`: take a model back: route first, then requests, then stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="may be left out if only one is there"
    )
    parser.add_argument(
        "--detach", action="store_true", help="do not wait; skippyctl watch shows it"
    )
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Begin, and show every step until it is done."""
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.following import begun, follow  # noqa: PLC0415 - lazy
    from skippyd.admin.wishes import WatchEvents, Withdraw  # noqa: PLC0415 - lazy

    with AdminClient(arguments.socket) as client:
        deployment = client.withdraw(Withdraw(model=arguments.model))
        if arguments.detach:
            return begun(deployment, arguments)
        watch = WatchEvents(after=deployment.after, model_id=deployment.model_id)
        return follow(client, arguments, watch, ends_when_final=True)
