"""`skippyd example-config`: prints a stage configuration to start from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from skippyd.config.examples import example_stage_text
from skippyd.errors import ExitCode


if TYPE_CHECKING:
    import argparse

HELP = "print an example stage configuration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the example still needs; there is nothing to choose."""
    parser.description = (
        f"{HELP}; it is valid, and can be served once model_path names a GGUF file "
        "and layer_end its number of layers"
    )


def run(_: argparse.Namespace) -> int:
    """Print the example on standard output, and what it needs on standard error."""
    sys.stdout.write(example_stage_text())
    sys.stderr.write(
        "model_path is null: name a GGUF file there, and its number of layers as "
        "layer_end, before serving\n"
    )
    return ExitCode.DONE
