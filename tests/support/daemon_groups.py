"""Daemons that start together, join each other, and end whatever happens."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from support.daemons import until


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.daemons import Daemon

MEET_SECONDS = 30.0


@contextlib.contextmanager
def joined(
    daemons: Sequence[Daemon], *, within_s: float = MEET_SECONDS
) -> Iterator[None]:
    """Start daemons, let each join those before it, and wait until all see all."""
    try:
        for daemon in daemons:
            daemon.start()
        for daemon in daemons:
            daemon.until_ready()
        for place, daemon in enumerate(daemons):
            for earlier in daemons[:place]:
                daemon.join(earlier)
        until_all_are_well(daemons, within_s=within_s)
        yield
    finally:
        for daemon in daemons:
            daemon.close()


def until_all_are_well(
    daemons: Sequence[Daemon], *, within_s: float = MEET_SECONDS
) -> None:
    """Wait until each daemon sees each of them well."""
    well = dict.fromkeys((daemon.name for daemon in daemons), "ok")
    for daemon in daemons:
        until(
            lambda daemon=daemon: daemon.sees() == well,  # type: ignore[misc]
            f"{daemon.name} sees {well}",
            within_s=within_s,
        )
