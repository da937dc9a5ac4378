"""Opening a connection to another stage: connect, prove the run, await its ready.

Under TLS the handshake comes first, in the same thread and under the same deadlines.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from skippyd.core.wire.auth import connection_token
from skippyd.core.wire.encode import encode_auth_preamble
from skippyd.core.wire.ready import ReadyParser
from skippyd.errors import (
    FailureCode,
    RemoteProtocolError,
    SkippyError,
    StageFailureError,
)
from skippyd.net.tcp import dial, prepare, receive, send_buffers
from skippyd.stage.opening import TLS_ALERT, wait_until
from skippyd.stage.waiting import PlainWaiter


if TYPE_CHECKING:
    import socket

    from skippyd.net.tcp import Address, StageSocket
    from skippyd.stage.node import StageNode, StageTimings
    from skippyd.stage.tls import Place
    from skippyd.stage.waiting import Waiter

RETRY_SECONDS = 0.5

logger = logging.getLogger("skippyd.stage")


class NotThereError(SkippyError):
    """Nothing accepts connections at an address (yet)."""


def open_connection(
    address: Address,
    *,
    purpose: str,
    run_key: bytes | None,
    source_host: str | None,
    timings: StageTimings,
    io_timeout_s: float,
    waiter: Waiter | None = None,
    place: Place | None = None,
) -> StageSocket:
    """Connect to a stage and wait until it says that it is ready.

    Args:
        address: Where it listens.
        purpose: What the connection is for.
        run_key: Proves the run; None where no token is demanded.
        source_host: The own address to leave from.
        timings: Deadlines.
        io_timeout_s: How long a read or write may stall later on.
        waiter: Where to wait.
        place: Who must be there, under TLS; None is plaintext.

    Raises:
        NotThereError: Nothing accepts there.
        RemoteProtocolError: What is there is no stage of this run and generation.
        StageFailureError: The waiter was told to stop.
    """
    try:
        connection = dial(
            address, source_host=source_host, timeout_s=timings.connect_attempt
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotThereError(f"cannot connect to {address}: {reason}") from error
    waiter = PlainWaiter() if waiter is None else waiter
    until = time.monotonic() + timings.ready
    try:
        prepare(connection, io_timeout_s=io_timeout_s)
        opened = _secured(connection, place, waiter, until)
        if run_key is not None:
            token = connection_token(run_key, purpose)
            send_buffers(opened, [encode_auth_preamble(token)])
        _await_ready(opened, address, waiter, timings.ready)
    except ConnectionAbortedError as error:
        connection.close()
        raise RemoteProtocolError(f"it refused this node: {error.strerror}") from error
    except OSError as error:
        connection.close()
        reason = error.strerror or str(error)
        raise NotThereError(f"{address} did not become ready: {reason}") from error
    except BaseException:
        connection.close()
        raise
    return opened


def _secured(
    plain: socket.socket, place: Place | None, waiter: Waiter, until: float
) -> StageSocket:
    if place is None:
        return plain
    return place.dialled(plain, lambda: wait_until(waiter, plain, until))


def connect_to_stage(
    node: StageNode,
    address: Address,
    index: int,
    purpose: str,
    *,
    patience_s: float,
    waiter: Waiter,
) -> StageSocket:
    """Connect to a stage of the chain, trying again until patience runs out.

    Raises:
        StageFailureError: It is not there, or is not of this run; names it, says why
            and what to do.
    """
    until = time.monotonic() + patience_s
    has_waited = False
    while True:
        try:
            return open_connection(
                address,
                purpose=purpose,
                run_key=node.config.transport_auth,
                source_host=node.config.bind_addr.host,
                timings=node.timings,
                io_timeout_s=node.timings.frame,
                waiter=waiter,
                place=None if node.tls is None else node.tls.place(index),
            )
        except RemoteProtocolError as error:
            raise StageFailureError(
                FailureCode.PROTOCOL,
                index,
                f"{node.name_of(index)} at {address} refused or does not speak this "
                f"protocol: {error}",
            ) from error
        except NotThereError as error:
            words = (
                f"{node.name_of(index)} at {address} is not there: {error}; "
                "start it, or correct its endpoint in the configuration"
            )
            if time.monotonic() + RETRY_SECONDS > until:
                raise StageFailureError(FailureCode.STAGE_LOST, index, words) from error
            if not has_waited:
                logger.warning("waiting up to %g s: %s", patience_s, words)
                has_waited = True
        _pause(waiter, RETRY_SECONDS)


def _pause(waiter: Waiter, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        waiter.wait([], until)


def _await_ready(
    connection: StageSocket, address: Address, waiter: Waiter, timeout_s: float
) -> None:
    parser = ReadyParser()
    until = time.monotonic() + timeout_s
    while parser.next_ready() is None:
        try:
            wait_until(waiter, connection, until)
        except TimeoutError as error:
            raise NotThereError(
                f"{address} accepts but did not become ready within {timeout_s:g} s"
            ) from error
        data = receive(connection, parser.wanted_bytes)
        if data == b"":
            raise RemoteProtocolError(
                f"{address} closed the connection before it was ready: it is of "
                "another run (transport_auth differs), expects another node at this "
                "stage's place, or has no room for more lanes"
            )
        if data is not None and data.startswith(TLS_ALERT):
            raise RemoteProtocolError(
                "it speaks TLS and this stage does not: give both the same setting "
                "([stages] allow_plaintext, or tls in stage.json)"
            )
        parser.receive_data(data or b"")
