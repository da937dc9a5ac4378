"""`skippyctl completion bash|zsh|fish`: a script that completes commands and flags."""

from __future__ import annotations

from typing import TYPE_CHECKING


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shell."""
    parser.epilog = (
        "As in: skippyctl completion bash > /etc/bash_completion.d/skippyctl"
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(arguments: argparse.Namespace) -> ExitCode:
    """Print the script."""
    from skippyctl.completion import entries, script  # noqa: PLC0415 - lazy
    from skippyctl.main import whole_parser  # noqa: PLC0415 - lazy
    from skippyd.errors import ExitCode  # noqa: PLC0415 - lazy

    print(script(arguments.shell, entries(whole_parser())))
    return ExitCode.DONE
