"""`skippyctl leases`: how long the accepted claims may still start stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyctl.arguments import add_common, add_watch


if TYPE_CHECKING:
    import argparse

    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_watch(parser)
    add_common(parser)


def run(arguments: argparse.Namespace) -> ExitCode:
    """Show the list."""
    from skippyctl.client import AdminClient  # noqa: PLC0415 - lazy
    from skippyctl.list_views import leases_page  # noqa: PLC0415 - lazy
    from skippyctl.lists import show_named_list  # noqa: PLC0415 - lazy

    return show_named_list(arguments, AdminClient.leases, leases_page)
