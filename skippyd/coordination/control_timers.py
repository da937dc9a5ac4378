"""Bounds and rhythms of the control connections, and the words both ends agree on."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import attrs

from skippyd.coordination.ports import MISSED_FOR_SILENCE, STATUS_EVERY_SECONDS


if TYPE_CHECKING:
    import trio

CONTROL_ALPN = "skippy-control/1"
BYTES_ALPN = "skippy-bytes/1"
"""Reserved for bulk bytes; refused by name until it is built."""

CONTROL_PATH = "/control/1"
JOIN_PATH = "/join/1"

HELLO, JOIN, STATUS_UPDATE = "hello", "join", "status_update"


@attrs.frozen(kw_only=True)
class ControlTimers:
    """How long things may take; tests shorten them.

    Args:
        opening_s: From the first byte to the end of the hello, everything included.
        status_every_s: A node says how it is at least this often.
        missed_for_silence: Status updates missed before a node counts as lost.
        status_gap_s: Changes within this time are told together.
        first_retry_s: Wait before a lost node is dialled again, doubled each time.
        longest_retry_s: Where the doubling ends.
    """

    opening_s: float = 5.0
    status_every_s: float = STATUS_EVERY_SECONDS
    missed_for_silence: int = MISSED_FOR_SILENCE
    status_gap_s: float = 0.05
    first_retry_s: float = 0.25
    longest_retry_s: float = 4.0

    @property
    def silence_s(self) -> float:
        """How long a node may say nothing."""
        return self.status_every_s * self.missed_for_silence


def watch_for_death(stream: trio.SocketStream, timers: ControlTimers) -> None:
    """Let the kernel end a connection whose other end is gone without a word."""
    silence_s = max(1, int(timers.silence_s))
    probe_s = max(1, silence_s // 5)
    for option, value in (
        (socket.TCP_USER_TIMEOUT, silence_s * 1000),
        (socket.TCP_KEEPIDLE, probe_s),
        (socket.TCP_KEEPINTVL, probe_s),
        (socket.TCP_KEEPCNT, 4),
    ):
        stream.setsockopt(socket.IPPROTO_TCP, option, value)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
