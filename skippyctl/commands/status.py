"""`skippyctl status`: the daemon, the run and the chain at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common, add_watch


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = (
        "Exit code 0: serving, or nothing is deployed; 3: degraded or not serving, or "
        "in safe mode; 4: the daemon does not answer; 5: permission denied."
    )
    add_watch(parser)
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Show the status; the exit code tells how it is."""
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.lists import now_unix_ms  # noqa: PLC0415 - lazy
    from skippyctl.output import show, show_each  # noqa: PLC0415 - lazy
    from skippyctl.status_view import status_exit_code, status_page  # noqa: PLC0415

    with AdminClient(arguments.socket) as client:
        if arguments.watch:
            show_each(
                client.follow_status(),
                lambda status: status_page(status, now_unix_ms()),
                arguments,
            )
        status = client.status()
        if not arguments.watch:
            show(status, status_page(status, now_unix_ms()), arguments)
    return status_exit_code(status)
