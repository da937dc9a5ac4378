"""`skippyctl fence show|init`: the memory that keeps old coordinators away."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from skippyctl.arguments import add_common, words


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    showing = actions.add_parser("show", help="what was accepted, and whether it votes")
    add_common(showing)
    initialising = actions.add_parser(
        "init",
        help="end a quarantine now",
        description=(
            "Vouch that this node forgot nothing that still matters: no lease that it "
            "may have given can still run. It votes again at once."
        ),
    )
    initialising.add_argument(
        "--reason", type=words, required=True, metavar="TEXT", help="for the log"
    )
    initialising.add_argument(
        "--yes", action="store_true", help="do not ask; needed without a terminal"
    )
    add_common(initialising)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Show the fence, or end its quarantine."""
    if arguments.action == "show":
        return _show(arguments)
    from skippyctl.changes import change  # noqa: PLC0415 - lazy
    from skippyd.admin.wishes import InitFence  # noqa: PLC0415 - lazy

    _ask(is_sure=arguments.yes)
    wish = InitFence(reason=arguments.reason)
    return change(arguments, lambda client: client.init_fence(wish))


def _show(arguments: argparse.Namespace) -> ExitCode:
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.list_views import fence_page  # noqa: PLC0415 - lazy
    from skippyctl.lists import node_names  # noqa: PLC0415 - lazy
    from skippyctl.output import show  # noqa: PLC0415 - lazy
    from skippyd.errors import ExitCode  # noqa: PLC0415 - lazy

    with AdminClient(arguments.socket) as client:
        fence = client.fence()
        names = {} if arguments.json else node_names(client)
    show(fence, fence_page(fence, names), arguments)
    return ExitCode.DEGRADED if fence.is_quarantined else ExitCode.DONE


def _ask(*, is_sure: bool) -> None:
    from skippyd.errors import UsageError  # noqa: PLC0415 - lazy

    if is_sure:
        return
    if not sys.stdin.isatty():
        raise UsageError("fence init without a terminal needs --yes")
    print(
        "If a lease that this node gave may still run, two coordinators can own one "
        'model. Vouch that none can? Type "yes": ',
        end="",
        file=sys.stderr,
        flush=True,
    )
    if sys.stdin.readline().strip() != "yes":
        raise UsageError("nothing was changed")
