"""The accepting end's opening of a connection: what its token may be for, and TLS.

A plain connection is opened on trio, see `service`. Under TLS all of it is done here, by
the thread that will own the connection, for TLS cannot change hands in the middle.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.wire.auth import (
    AuthParser,
    connection_token,
    lane_purpose,
    return_purpose,
)
from skippyd.core.wire.encode import encode_ready
from skippyd.errors import RemoteProtocolError
from skippyd.net.tcp import RECEIVE_BYTES, receive, send_buffers


if TYPE_CHECKING:
    import socket

    from skippyd.net.tcp import StageSocket
    from skippyd.net.tls_socket import TlsSocket
    from skippyd.stage.node import StageNode
    from skippyd.stage.tls import StageTls
    from skippyd.stage.waiting import Waiter

UNTOLD_STAGES_MAX = 64
TLS_HANDSHAKE = b"\x16\x03"
"""How a dialler under TLS begins."""

TLS_ALERT = b"\x15\x03"
"""How an end under TLS answers one that is not."""


@attrs.frozen(kw_only=True)
class Opened:
    """A connection whose dialler has been told that we are ready.

    Args:
        connection: The connection.
        first_bytes: What arrived behind the token already.
        purpose: What the token is for.
    """

    connection: TlsSocket
    first_bytes: bytes
    purpose: str


def open_under_tls(
    node: StageNode, tls: StageTls, plain: socket.socket, waiter: Waiter, until: float
) -> Opened:
    """Make the handshake, check token and place, say that we are ready; blocks.

    Args:
        node: The stage.
        tls: Whom it trusts.
        plain: The prepared socket.
        waiter: Where to wait.
        until: When all of it must be done.

    Raises:
        RemoteProtocolError: The dialler has no right to be here.
        OSError: The connection broke, or time ran out.
        StageFailureError: The waiter was told to stop.
    """
    connection, key = tls.accepted(plain, lambda: wait_until(waiter, plain, until))
    assert node.config.transport_auth is not None  # demanded by the configuration
    parser = AuthParser(expected_tokens(node, node.config.transport_auth))
    parser.receive_data(connection.take_early())
    while (purpose := parser.next_purpose()) is None:
        wait_until(waiter, connection, until)
        data = receive(connection, RECEIVE_BYTES)
        if data == b"":
            parser.receive_eof()
            raise RemoteProtocolError("closed before it proved its run")
        parser.receive_data(data or b"")
    tls.place(_dialler_of(purpose)).check(key)
    send_buffers(connection, [encode_ready()])
    return Opened(
        connection=connection, first_bytes=parser.take_unread(), purpose=purpose
    )


def wait_until(waiter: Waiter, connection: StageSocket, until: float) -> None:
    """Return when a connection is readable.

    Raises:
        TimeoutError: It is not in time.
    """
    while connection.fileno() not in waiter.wait([connection], until):
        if time.monotonic() >= until:
            raise TimeoutError("the other end did not go on in time")


def expected_tokens(node: StageNode, run_key: bytes) -> dict[str, bytes]:
    """The token of every connection that may be opened at a stage, by purpose."""
    purposes = [lane_purpose(node.index - 1, node.index)]
    if node.is_final and not node.is_first:
        purposes.append(return_purpose(0, node.index))
    if node.is_first:
        purposes += [return_purpose(index, 0) for index in _possible_finals(node)]
    return {purpose: connection_token(run_key, purpose) for purpose in purposes}


def _possible_finals(node: StageNode) -> range:
    """Indices the final stage may have; a stage without topology cannot know it."""
    if node.topology is not None or node.is_final:
        return range(node.final_index, node.final_index + 1)
    return range(1, UNTOLD_STAGES_MAX)


def _dialler_of(purpose: str) -> int:
    """The stage that dials for a purpose, "lane:A>B" or "return:A>B"; -1 a driver."""
    return int(purpose.partition(":")[2].partition(">")[0])
