"""The `skippyd` command: which subcommand, and how an error ends the process."""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
import traceback
from typing import TYPE_CHECKING, Protocol

from skippyd import __version__
from skippyd.errors import ExitCode, SkippyError


if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {  # demo, verify, bench first: what a newcomer tries
    "demo": "demo",
    "verify": "verify",
    "bench": "bench",
    "serve-binary": "serve_binary",
    "serve-openai": "serve_openai",
    "serve": "serve",
    "example-config": "example_config",
    "run": "run",
    "config": "config",
}
"""Command to module, in the order of `--help`."""


class _Command(Protocol):
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, arguments: argparse.Namespace) -> int: ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if not sys.platform.startswith("linux"):
        print(f"skippyd: runs on Linux only, this is {sys.platform}", file=sys.stderr)
        return ExitCode.FAILED
    try:
        return _run(arguments)
    except SkippyError as error:
        for line in str(error).splitlines():
            print(f"skippyd: {line}", file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        print("skippyd: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.FAILED
    except Exception as error:  # noqa: BLE001 - the last line of defence: say it, exit 70
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            print(f"skippyd: cannot write: {error}; free some space", file=sys.stderr)
            return ExitCode.FAILED
        traceback.print_exc()
        print(
            "skippyd: internal error, please report the lines above",
            file=sys.stderr,
        )
        return ExitCode.INTERNAL


def _run(arguments: Sequence[str] | None) -> int:
    parser = whole_parser()
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help(sys.stderr)
        return ExitCode.USAGE
    return int(_load(chosen.command).run(chosen))


def whole_parser() -> argparse.ArgumentParser:
    """The parser with every command's flags."""
    parser = argparse.ArgumentParser(
        prog="skippyd",
        description="Run one language model across several machines none of which "
        "could hold it alone.",
    )
    parser.add_argument("--version", action="version", version=f"skippyd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in COMMANDS:
        command = _load(name)
        sub = commands.add_parser(name, help=command.HELP, allow_abbrev=False)
        command.add_arguments(sub)
    return parser


def _load(name: str) -> _Command:
    module: _Command = importlib.import_module(f"skippyd.cli.{COMMANDS[name]}")
    return module
