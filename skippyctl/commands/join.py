"""`skippyctl join`: join the node that gave a token out; both pin each other."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from skippyctl.arguments import add_common, words


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode

LONGEST_TOKEN = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "token",
        type=words,
        metavar="TOKEN",
        help="what skippyctl invite printed; - reads it from standard input",
    )
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Join."""
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.output import show  # noqa: PLC0415 - lazy
    from skippyctl.page import line  # noqa: PLC0415 - lazy
    from skippyctl.status_view import node_label  # noqa: PLC0415 - lazy
    from skippyd.admin.wishes import Join  # noqa: PLC0415 - lazy
    from skippyd.errors import ExitCode, UsageError  # noqa: PLC0415 - lazy

    token = arguments.token
    if token == "-":  # noqa: S105 - a dash is no secret
        # Command lines can be seen by other users of this machine.
        token = sys.stdin.readline(LONGEST_TOKEN + 1).strip()
    if not 0 < len(token) <= LONGEST_TOKEN:
        raise UsageError("the token is empty or too long; copy the whole line once")
    with AdminClient(arguments.socket) as client:
        joined = client.join(Join(token=token))
    label = node_label(joined.name, joined.node_id)
    show(joined, (line(f"joined {label} at {joined.address}"),), arguments)
    return ExitCode.DONE
