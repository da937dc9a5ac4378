"""`skippyctl invite`: one token that lets one machine join."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from skippyctl.arguments import add_common


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print the token alone on standard output; what to do with it on standard error."""
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.output import json_line  # noqa: PLC0415 - lazy
    from skippyctl.words import clean_line, moment  # noqa: PLC0415 - lazy
    from skippyd.errors import ExitCode  # noqa: PLC0415 - lazy

    with AdminClient(arguments.socket) as client:
        invitation = client.invite()
    print(
        "on the other machine, once, before "
        f"{moment(invitation.expires_unix_ms)}: skippyctl join TOKEN\n"
        f"it will connect to {clean_line(invitation.address)}; whoever has the token "
        "may join",
        file=sys.stderr,
    )
    print(json_line(invitation) if arguments.json else clean_line(invitation.token))
    return ExitCode.DONE
