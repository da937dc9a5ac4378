"""Chooses how a result is written: for a terminal, for a pipe, for a script, a file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from skippyctl.render_json import plan_json
from skippyctl.render_plain import plan_text
from skippyctl.render_svg import plan_svg
from skippyd.errors import UsageError


if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import TextIO

    from skippyctl.planning import Outcome


def show_plan(outcome: Outcome, *, explain: bool, as_json: bool, color: str) -> None:
    """Print the outcome on standard output in the form that suits it."""
    if as_json:
        print(plan_json(outcome, explain=explain))
    elif wants_colours(sys.stdout, color, os.environ):
        _show_on_terminal(outcome, explain=explain)
    elif sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        _show_on_terminal(outcome, explain=explain, is_plain=True)
    else:
        print(plan_text(outcome, explain=explain))


def wants_colours(stream: TextIO, color: str, environment: Mapping[str, str]) -> bool:
    """Whether to colour: the flag, then NO_COLOR, FORCE_COLOR, then the terminal."""
    if color != "auto":
        return color == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environment.get("TERM") != "dumb"


def write_map(outcome: Outcome, path: Path) -> None:
    """Write the memory map.

    Raises:
        UsageError: The file cannot be written.
    """
    try:
        path.write_text(plan_svg(outcome), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--memory-map {path}: cannot be written: {error.strerror or error}"
        ) from error


def _show_on_terminal(
    outcome: Outcome, *, explain: bool, is_plain: bool = False
) -> None:
    from rich.console import Console  # noqa: PLC0415 - not needed for JSON or pipes

    from skippyctl.render_terminal import plan_view  # noqa: PLC0415 - as above

    console = Console(
        force_terminal=True,
        color_system=None if is_plain else "auto",
        highlight=False,
        emoji=False,
        markup=False,
        soft_wrap=False,
    )
    console.print(plan_view(outcome, width=console.width, explain=explain))
