"""The program `skippyctl`: finds the command, runs it, turns errors into exit codes.

A command's module is imported only when its name is on the command line.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Protocol, cast

from skippyd import __version__
from skippyd.errors import ExitCode, SkippyError


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


COMMANDS = {
    "status": "the daemon, the run and the chain at a glance",
    "nodes": "this node and its peers, and the way to each of them",
    "plan": "plan a topology from a nodes file; needs no daemon",
    "deploy": "serve a model over the nodes that this one knows",
    "watch": "the steps of deployments, from any point that is still kept",
    "withdraw": "take a model back",
    "load-local": "serve a whole model on this node alone, without a coordinator",
    "drain": "let this node take no new stage, and give up those it has",
    "stop": "end stages of this node at once",
    "invite": "print a token that lets one machine join",
    "join": "join the node that gave a token out",
    "claims": "the coordinators that this node has accepted",
    "leases": "how long they may still start stages",
    "lanes": "who uses which lane of this node's stages",
    "sessions": "the sessions that hold KV cells on this node",
    "telemetry": "rates and times of the last minute, and the newest spans",
    "logs": "the newest lines of the daemon's log",
    "fence": "the memory that keeps old coordinators away",
    "safe-mode": "one request at a time while something is wrong",
    "doctor": "look at what often goes wrong, and say what to do",
    "completion": "print a completion script for a shell",
}


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
    command = _load(name) if name in COMMANDS else None
    loaded = {} if command is None else {name or "": command}
    arguments = _parser(loaded).parse_args(words)
    if command is None:
        return ExitCode.USAGE
    return _run(name or "", command, arguments)


def whole_parser() -> argparse.ArgumentParser:
    """The parser with every command's flags; costs the import of all of them."""
    return _parser({name: _load(name) for name in COMMANDS})


def _load(name: str) -> Command:
    module = importlib.import_module(f"skippyctl.commands.{name.replace('-', '_')}")
    return cast("Command", module)


def _parser(loaded: Mapping[str, Command]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="skippyctl", description="Look at and steer the nodes of a split model."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for each, summary in COMMANDS.items():
        own = commands.add_parser(each, help=summary, description=summary)
        if each in loaded:
            loaded[each].add_arguments(own)
    return parser


def _run(name: str, command: Command, arguments: argparse.Namespace) -> int:
    try:
        code = command.run(arguments)
        sys.stdout.flush()
    except SkippyError as error:
        _complain(name, str(error))
        if getattr(arguments, "errors_in_json", False) and arguments.json:
            _complain_in_json(name, error)
        return error.exit_code
    except BrokenPipeError:
        # The reader has seen enough.
        _drop_output()
        return ExitCode.DONE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last place that can still name a code
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _drop_output()
            _complain(name, "standard output takes no more: the disk is full")
            return ExitCode.FAILED
        traceback.print_exc()
        _complain(name, "internal error; the lines above say where")
        return ExitCode.INTERNAL
    return code


def _drop_output() -> None:
    """Let nothing be written any more; Python would complain once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(name: str | None, text: str) -> None:
    for line in text.splitlines():
        print(f"skippyctl {name}: {line}", file=sys.stderr)


def _complain_in_json(name: str, error: SkippyError) -> None:
    document = {
        "schema": "skippy.error/1",
        "command": name,
        "message": str(error),
        "exit_code": int(error.exit_code),
    }
    print(json.dumps(document), file=sys.stderr)
