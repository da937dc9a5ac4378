"""The program `skippyctl`: finds the command, runs it, turns errors into exit codes.

A command's module is imported only when its name is on the command line.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from typing import TYPE_CHECKING, Protocol, cast

from skippyd import __version__
from skippyd.errors import ExitCode, SkippyError


if TYPE_CHECKING:
    from collections.abc import Sequence


COMMANDS = {
    "plan": "plan a topology from a nodes file; needs no daemon",
}
LATER = (
    "status",
    "claims",
    "leases",
    "lanes",
    "sessions",
    "nodes",
    "deploy",
    "watch",
    "safe-mode",
)


class Command(Protocol):
    """What each module in `skippyctl.commands` offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's flags."""

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Do it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in words if not word.startswith("-")), None)
    if name in LATER:
        _complain(name, "not supported yet")
        return ExitCode.USAGE
    command = _load(name) if name in COMMANDS else None
    arguments = _parser(name, command).parse_args(words)
    if command is None:
        return ExitCode.USAGE
    return _run(name or "", command, arguments)


def _load(name: str) -> Command:
    module = importlib.import_module(f"skippyctl.commands.{name.replace('-', '_')}")
    return cast("Command", module)


def _parser(name: str | None, command: Command | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="skippyctl", description="Look at and steer the nodes of a split model."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for each, summary in COMMANDS.items():
        own = commands.add_parser(each, help=summary, description=summary)
        if command is not None and each == name:
            command.add_arguments(own)
    return parser


def _run(name: str, command: Command, arguments: argparse.Namespace) -> int:
    try:
        code = command.run(arguments)
        sys.stdout.flush()
    except SkippyError as error:
        _complain(name, str(error))
        return error.exit_code
    except BrokenPipeError:
        # The reader has seen enough; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception:  # noqa: BLE001 - the last place that can still name a code
        traceback.print_exc()
        _complain(name, "internal error; the lines above say where")
        return ExitCode.INTERNAL
    return code


def _complain(name: str | None, text: str) -> None:
    for line in text.splitlines():
        print(f"skippyctl {name}: {line}", file=sys.stderr)
