"""What the service manager is told: ready, how it goes, alive, reloading, stopping.

A watchdog message is sent only after the node has been found alive: this loop turned,
the fence store took a question, and no stage and no lane of one hangs. Without a service
manager nothing is sent.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.errors import SkippyError


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

logger = logging.getLogger("skippyd.notify")

STATUS_SECONDS = 5.0
LONGEST_STATUS = 200
US_PER_S = 1_000_000
HEALTH_PATIENCE_SHARE = 0.25
"""Of the watchdog's time, for one look at the fence store."""


@attrs.define(eq=False, kw_only=True)
class Notifier:
    """The socket of the service manager.

    Args:
        address: Its path, `@` in front of an abstract one; None without a manager.
        watchdog_s: How long it waits for a sign of life; None when it does not.
    """

    address: str | None = None
    watchdog_s: float | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Notifier:
        """Read what the service manager has set; meant for this process only."""
        watchdog_us = environment.get("WATCHDOG_USEC", "")
        meant_for = environment.get("WATCHDOG_PID", str(os.getpid()))
        is_watched = watchdog_us.isdecimal() and meant_for == str(os.getpid())
        return cls(
            address=environment.get("NOTIFY_SOCKET") or None,
            watchdog_s=int(watchdog_us) / US_PER_S if is_watched else None,
        )

    def send(self, **fields: str | int) -> None:
        """Send fields, one a line; what cannot be sent is logged and no error."""
        if self.address is None:
            return
        text = "\n".join(f"{name}={_one_line(v)}" for name, v in fields.items())
        address = self.address
        if address.startswith("@"):
            address = "\0" + address[1:]
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.setblocking(False)
                manager.sendto(text.encode(), address)
        except OSError as error:
            logger.debug("the service manager was not told %r: %s", text, error)

    def ready(self, status: str) -> None:
        """Say that the daemon serves."""
        self.send(READY=1, STATUS=status)

    def reloading(self) -> None:
        """Say that the configuration is read again; `ready` ends it."""
        moment_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self.send(RELOADING=1, MONOTONIC_USEC=moment_us)

    def stopping(self, status: str, *, within_s: float) -> None:
        """Say that the daemon ends, and how long that may take."""
        self.send(
            STOPPING=1, STATUS=status, EXTEND_TIMEOUT_USEC=int(within_s * US_PER_S)
        )

    async def run(
        self, *, status: Callable[[], str], check: Callable[[], Awaitable[None]]
    ) -> None:
        """Tell the status when it changes, and that the daemon is well.

        Args:
            status: One line.
            check: Returns when the node is well; its errors withhold the sign of life.
        """
        if self.address is None:
            return
        every_s = min(STATUS_SECONDS, (self.watchdog_s or STATUS_SECONDS * 4) / 4)
        told = ""
        while True:
            if (now := status()) != told:
                self.send(STATUS=now)
                told = now
            if self.watchdog_s is not None and await self._is_well(check):
                self.send(WATCHDOG=1)
            await trio.sleep(every_s)

    async def _is_well(self, check: Callable[[], Awaitable[None]]) -> bool:
        assert self.watchdog_s is not None
        reason = "the fence store does not answer in time"
        with trio.move_on_after(self.watchdog_s * HEALTH_PATIENCE_SHARE):
            try:
                await check()
            except SkippyError as error:
                reason = str(error)
            else:
                return True
        logger.error("event=unwell reason=%r", reason)
        return False


def _one_line(value: str | int) -> str:
    return " ".join(str(value).split())[:LONGEST_STATUS]
