"""`skippyctl load-local`: a whole model on this node alone, without a coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common, model, positive


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "model",
        type=model,
        metavar="MODEL",
        help="name, path or SHA-256 of a model file that this node has",
    )
    parser.add_argument(
        "--context", type=positive, metavar="TOKENS", help="this context, no other"
    )
    parser.add_argument("--lanes", type=positive, metavar="N", help="requests at once")
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Load it and say where it is served; a later claim of the model ends it."""
    from skippyctl.changes import change  # noqa: PLC0415 - lazy
    from skippyd.admin.wishes import LoadLocal  # noqa: PLC0415 - lazy

    wish = LoadLocal(
        model=arguments.model, context=arguments.context, lanes=arguments.lanes
    )
    return change(arguments, lambda client: client.load_local(wish))
