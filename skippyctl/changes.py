"""The commands that change one thing and say what they did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.client import AdminClient
from skippyctl.output import show
from skippyctl.page import line
from skippyd.errors import ExitCode


if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from skippyd.admin.schema import Done


def change(
    arguments: argparse.Namespace, ask: Callable[[AdminClient], Done]
) -> ExitCode:
    """Ask for a change and show the answer."""
    with AdminClient(arguments.socket) as client:
        done = ask(client)
    show(done, (line(done.message),), arguments)
    return ExitCode.DONE
