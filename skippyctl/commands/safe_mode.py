"""`skippyctl safe-mode on|off|status`: one request at a time while something is wrong."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from skippyctl.arguments import add_common, words


if TYPE_CHECKING:
    import argparse

    from skippyctl.client import AdminClient
    from skippyd.admin.schema import SafeModeReport
    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their flags."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    on = actions.add_parser("on", help="request it; takes effect at restart")
    on.add_argument(
        "--reason",
        type=words,
        required=True,
        metavar="TEXT",
        help="for those who find it on",
    )
    off = actions.add_parser("off", help="take the request back; effective at restart")
    for each in (on, off):
        each.add_argument("--restart", action="store_true", help="restart skippyd now")
    status = actions.add_parser("status", help="whether it is requested and effective")
    for each in (on, off, status):
        add_common(each)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Do it, and show how it stands; status exits with 3 while it is on."""
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.list_views import safe_mode_page  # noqa: PLC0415 - lazy
    from skippyctl.output import show  # noqa: PLC0415 - lazy
    from skippyd.errors import ExitCode  # noqa: PLC0415 - lazy

    with AdminClient(arguments.socket) as client:
        report = _report(client, arguments)
    show(report, safe_mode_page(report), arguments)
    state = report.safe_mode
    is_on = state.requested or state.effective
    if arguments.action == "status":
        return ExitCode.DEGRADED if is_on else ExitCode.DONE
    if state.requested != state.effective:
        _say_when(is_restarting=arguments.restart)
    return ExitCode.DONE


def _report(client: AdminClient, arguments: argparse.Namespace) -> SafeModeReport:
    from skippyd.admin.wishes import SafeModeOff, SafeModeOn  # noqa: PLC0415 - lazy

    if arguments.action == "on":
        wish = SafeModeOn(reason=arguments.reason, restart=arguments.restart)
        return client.safe_mode_on(wish)
    if arguments.action == "off":
        return client.safe_mode_off(SafeModeOff(restart=arguments.restart))
    return client.safe_mode()


def _say_when(*, is_restarting: bool) -> None:
    when = "skippyd restarts now" if is_restarting else "takes effect at restart"
    print(f"{when}; skippyctl status shows it", file=sys.stderr)
