"""`skippyd bench`: figures as ratios, taken in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    import argparse

HELP = "measure the chain against the unsplit engine"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""


def run(arguments: argparse.Namespace) -> int:
    """Measure."""
    return 0
