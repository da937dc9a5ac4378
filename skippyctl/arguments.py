"""Flags that several commands share, and how their values are read."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


SOCKET = Path("/run/skippyd/admin.sock")
SOCKET_VARIABLE = "SKIPPY_ADMIN_SOCKET"
_MOST_DIGITS = 18


def add_common(parser: argparse.ArgumentParser) -> None:
    """Declare what every command that asks a daemon understands."""
    parser.add_argument(
        "--socket",
        type=Path,
        default=Path(os.environ.get(SOCKET_VARIABLE) or SOCKET),
        metavar="PATH",
        help=f"admin socket of the daemon (default: ${SOCKET_VARIABLE}, else {SOCKET})",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one line of JSON instead"
    )
    # A script gets errors as JSON too, as the last line of standard error.
    parser.set_defaults(errors_in_json=True)
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colours on standard output",
    )


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Declare that a command can go on looking."""
    parser.add_argument(
        "--watch", action="store_true", help="go on; with --json one line each time"
    )


def whole(text: str) -> int:
    """Read a whole number that is not negative."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def positive(text: str) -> int:
    """Read a whole number of 1 or more."""
    number = whole(text)
    if number == 0:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def names(text: str) -> tuple[str, ...]:
    """Read names with commas between them, none of them empty or twice."""
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r}: a name is empty")
    if len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(f"{text!r}: a name is there twice")
    return found


def model(text: str) -> str:
    """Read what a model is called; a path is one of this folder, not of the daemon's."""
    named = words(text)
    is_path = "/" in named or named.endswith(".gguf")
    return str(Path(named).absolute()) if is_path else named


def words(text: str) -> str:
    """Read a text that says something."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return text.strip()
