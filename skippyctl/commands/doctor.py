"""`skippyctl doctor`: look at what often goes wrong, and say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode, SkippyError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = (
        "Exit code 0: nothing failed; 1: a check failed; 4: the daemon does not "
        "answer; 5: permission denied."
    )
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Check the socket from here and everything else in the daemon."""
    from skippyctl.channel import DaemonUnreachableError, SocketDeniedError  # noqa: PLC0415
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.list_views import doctor_page  # noqa: PLC0415 - lazy
    from skippyctl.output import show  # noqa: PLC0415 - lazy
    from skippyctl.socket_checks import socket_check  # noqa: PLC0415 - lazy
    from skippyd.admin.schema_checks import CheckRow, Doctor  # noqa: PLC0415 - lazy
    from skippyd.errors import ExitCode  # noqa: PLC0415 - lazy

    checks = [socket_check(arguments.socket)]
    silent: SkippyError | None = None
    try:
        with AdminClient(arguments.socket) as client:
            checks.extend(client.doctor().items)
    except (DaemonUnreachableError, SocketDeniedError) as error:
        silent = error
        checks.append(
            CheckRow(
                check="daemon",
                verdict="failed",
                finding=str(error),
                remedy="everything else is checked by the daemon, once it answers",
            )
        )
    doctor = Doctor(items=tuple(checks))
    show(doctor, doctor_page(doctor.items), arguments)
    if silent is not None:
        return silent.exit_code
    is_ill = any(check.verdict == "failed" for check in checks)
    return ExitCode.FAILED if is_ill else ExitCode.DONE
