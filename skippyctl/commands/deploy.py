"""`skippyctl deploy`: serve a model over the nodes that this one knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common, model, names, positive


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


FAILURES_WAITED_FOR = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "model",
        type=model,
        metavar="MODEL",
        help="name, path or SHA-256 of a model file that the nodes have",
    )
    parser.add_argument(
        "--context", type=positive, metavar="TOKENS", help="this context, no other"
    )
    parser.add_argument("--lanes", type=positive, metavar="N", help="requests at once")
    parser.add_argument(
        "--nodes", type=names, default=(), metavar="A,B", help="use these nodes only"
    )
    # A dry run is over when it is answered: nothing of it could be watched later.
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--dry-run", action="store_true", help="only say what would be done"
    )
    ways.add_argument(
        "--detach", action="store_true", help="do not wait; skippyctl watch shows it"
    )
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Begin, and show every step until the model is served or has failed thrice."""
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.following import begun, follow  # noqa: PLC0415 - lazy
    from skippyd.admin.wishes import Deploy, WatchEvents  # noqa: PLC0415 - lazy

    wish = Deploy(
        model=arguments.model,
        context=arguments.context,
        lanes=arguments.lanes,
        nodes=arguments.nodes,
        dry_run=arguments.dry_run,
    )
    with AdminClient(arguments.socket) as client:
        deployment = client.deploy(wish)
        if arguments.detach:
            return begun(deployment, arguments)
        watch = WatchEvents(after=deployment.after, model_id=deployment.model_id)
        return follow(
            client,
            arguments,
            watch,
            ends_when_final=True,
            is_dry_run=arguments.dry_run,
            most_failures=None if arguments.dry_run else FAILURES_WAITED_FOR,
        )
