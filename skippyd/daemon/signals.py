"""Signals of the daemon: TERM and INT end it in order, HUP reads its configuration."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.daemon.config_checks import checked_config
from skippyd.daemon.logs import set_level
from skippyd.daemon.node import configured_peers
from skippyd.errors import ConfigError, ExitCode


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.config.daemon import DaemonConfig
    from skippyd.daemon.node import Node
    from skippyd.daemon.notify import Notifier

logger = logging.getLogger("skippyd.daemon")

READ_AGAIN = "configuration read again"
REFUSED = "the new configuration is refused, see the log; the old one is in force"

RELOADED_TABLES = ("peers",)
RELOADED_KEYS = {"node": ("log_level",), "timers": ("drain_ms",)}
"""What a running daemon takes over; everything else waits for a restart, and says so."""


async def watch_signals(
    node: Node,
    notifier: Notifier,
    reload: Callable[[], DaemonConfig],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Act on signals until cancelled; a third one to end ends at once."""
    ends = 0
    with trio.open_signal_receiver(
        signal.SIGTERM, signal.SIGINT, signal.SIGHUP
    ) as signals:
        task_status.started()
        async for number in signals:
            logger.info("event=signal name=%s", signal.Signals(number).name)
            if number == signal.SIGHUP:
                notifier.reloading()
                is_taken = take_over(node, reload)
                notifier.ready(READ_AGAIN if is_taken else REFUSED)
                continue
            ends += 1
            node.stopping.set()
            if ends > 2:  # noqa: PLR2004 - said above
                # Children have their own watch on this process and end with it.
                os._exit(ExitCode.INTERRUPTED)


def take_over(node: Node, reload: Callable[[], DaemonConfig]) -> bool:
    """Read the configuration again and take over what a running daemon can.

    Returns:
        Whether it did; what could not be started with is refused, and logged.
    """
    try:
        fresh = reload()
        # What could not be started with is not taken over in part either.
        checked = checked_config(fresh, os.environ)
        peers = configured_peers(fresh.peers)
    except ConfigError as error:
        logger.error("event=reload_refused reason=%r", str(error))  # noqa: TRY400 - its text is all
        return False
    for warning in checked.warnings:
        logger.warning("%s", warning)
    waiting = waiting_keys(node.config, fresh)
    if waiting:
        logger.warning("event=reload_incomplete restart_for=%s", ",".join(waiting))
    old = node.config
    node.config = attrs.evolve(
        old,
        peers=fresh.peers,
        node=attrs.evolve(old.node, log_level=fresh.node.log_level),
        timers=attrs.evolve(old.timers, drain_ms=fresh.timers.drain_ms),
    )
    set_level(fresh.node.log_level)
    node.peers.set_configured(peers)
    logger.info("event=reloaded peers=%d", len(peers))
    return True


def waiting_keys(old: DaemonConfig, fresh: DaemonConfig) -> tuple[str, ...]:
    """The keys that differ and take effect at a restart only."""
    found = []
    for table in attrs.fields(type(old)):
        if table.name in RELOADED_TABLES:
            continue
        before, after = getattr(old, table.name), getattr(fresh, table.name)
        for key in attrs.fields(type(before)):
            if key.name in RELOADED_KEYS.get(table.name, ()):
                continue
            if getattr(before, key.name) != getattr(after, key.name):
                found.append(f"{table.name}.{key.name}")
    return tuple(found)
