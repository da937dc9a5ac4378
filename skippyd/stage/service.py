"""Accepting connections of upstream stages and drivers, and watching their threads.

Trio owns the listener, the opening of each plain connection and its end; the messages
themselves are handled by a thread that owns the blocking socket, which under TLS also
opens it.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from typing import TYPE_CHECKING

import trio

from skippyd.core.wire.auth import AuthParser
from skippyd.core.wire.encode import encode_ready
from skippyd.core.wire.ready import is_client_hello
from skippyd.errors import RemoteProtocolError, SkippyError
from skippyd.net.tcp import NO_TLS_ALERT, RECEIVE_BYTES, prepare
from skippyd.stage.opening import TLS_HANDSHAKE, expected_tokens
from skippyd.stage.upstream import UpstreamConnection


if TYPE_CHECKING:
    from skippyd.config.endpoints import Endpoint
    from skippyd.stage.node import StageNode

logger = logging.getLogger("skippyd.stage")

OPENING_SECONDS = 5.0
HELLO_SECONDS = 0.5
HELLO_BYTES = 4
HELLO_VARIABLE = "SKIPPY_STAGE_CLIENT_READY_HELLO"
SPARE_CONNECTIONS = 16
BACKLOG = 64
LACKING = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
LACKING_PAUSE_SECONDS = 0.1


class BindError(SkippyError):
    """An address cannot be listened on."""


def listen_on(endpoint: Endpoint) -> socket.socket:
    """Bind and listen, without waiting for a predecessor's port to cool down.

    Raises:
        BindError: The port is taken or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((endpoint.host, endpoint.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise BindError(
            f"cannot listen on {endpoint}: {error.strerror or error}; choose another "
            "bind_addr, or stop what holds the port (`ss -ltnp` shows it)"
        ) from error
    return listener


async def serve_lanes(
    node: StageNode,
    listener: socket.socket,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept and serve connections until cancelled."""
    places = trio.CapacityLimiter(2 * node.config.lane_count + SPARE_CONNECTIONS)
    accepting = trio.socket.from_stdlib_socket(listener)
    async with trio.open_nursery() as nursery:
        task_status.started()
        while True:
            connection, peer = await _accept(accepting)
            place = object()
            try:
                places.acquire_on_behalf_of_nowait(place)
            except trio.WouldBlock:
                logger.warning(
                    "refused %s: all %d connections of this stage are taken; raise "
                    "lane_count, or end what holds them",
                    peer,
                    places.total_tokens,
                )
                connection.close()
                continue
            nursery.start_soon(_serve_in_place, node, connection, peer, places, place)


async def _accept(
    accepting: trio.socket.SocketType,
) -> tuple[trio.socket.SocketType, str]:
    """The next connection; a lack of descriptors is waited out."""
    while True:
        try:
            connection, address = await accepting.accept()
        except OSError as error:
            if error.errno in LACKING:
                logger.warning(
                    "cannot accept connections: %s; raise the limit", error.strerror
                )
                await trio.sleep(LACKING_PAUSE_SECONDS)
            elif error.errno != errno.ECONNABORTED:
                raise
        else:
            return connection, f"{address[0]}:{address[1]}"


async def _serve_in_place(
    node: StageNode,
    connection: trio.socket.SocketType,
    peer: str,
    places: trio.CapacityLimiter,
    place: object,
) -> None:
    try:
        await _serve_connection(node, connection, peer)
    finally:
        places.release_on_behalf_of(place)


async def _serve_connection(
    node: StageNode, connection: trio.socket.SocketType, peer: str
) -> None:
    first_bytes, purpose = b"", None
    try:
        if node.tls is None:
            with trio.fail_after(OPENING_SECONDS):
                first_bytes, purpose = await _open(node, connection)
    except (OSError, RemoteProtocolError, trio.TooSlowError) as error:
        # The dialler is told nothing: it may be anyone.
        logger.warning("dropped a connection from %s: %r", peer, error)
        connection.close()
        return
    except BaseException:
        connection.close()
        raise
    # `detach` closes nothing; from here the thread owns the socket.
    family, kind = connection.family, connection.type
    plain = socket.socket(family, kind, fileno=connection.detach())
    try:
        prepare(plain, io_timeout_s=node.timings.frame)
    except OSError as error:
        logger.warning("connection of %s broke: %s", peer, error)
        plain.close()
        return
    upstream = UpstreamConnection(
        node,
        plain,
        peer=peer,
        first_bytes=first_bytes,
        purpose=purpose,
        opening_s=None if node.tls is None else OPENING_SECONDS,
    )
    await _run_thread(upstream)


async def _run_thread(upstream: UpstreamConnection) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_interrupt_on_cancel, upstream)
        await trio.to_thread.run_sync(
            upstream.run, limiter=trio.CapacityLimiter(1), abandon_on_cancel=False
        )
        nursery.cancel_scope.cancel()


async def _interrupt_on_cancel(upstream: UpstreamConnection) -> None:
    try:
        await trio.sleep_forever()
    finally:
        upstream.interrupt()


async def _open(
    node: StageNode, connection: trio.socket.SocketType
) -> tuple[bytes, str | None]:
    """Check the token if one is demanded, eat a hello, say that we are ready.

    Returns:
        What arrived behind the token, and what the token is for.
    """
    rest, purpose = b"", None
    if node.config.transport_auth is not None:
        parser = AuthParser(expected_tokens(node, node.config.transport_auth))
        while (purpose := parser.next_purpose()) is None:
            data = await connection.recv(parser.wanted_bytes)
            if not data:
                parser.receive_eof()
                raise RemoteProtocolError("closed before it proved its run")
            if parser.at_boundary and data.startswith(TLS_HANDSHAKE):
                await _send_all(connection, NO_TLS_ALERT)
                # Closing with unread bytes would take the alert back.
                connection.shutdown(socket.SHUT_WR)
                while await connection.recv(RECEIVE_BYTES):
                    pass
                raise RemoteProtocolError(
                    "the dialler speaks TLS and this stage does not: give both the "
                    "same setting ([stages] allow_plaintext, or tls in stage.json)"
                )
            parser.receive_data(data)
        rest = parser.take_unread()
    if os.environ.get(HELLO_VARIABLE):
        await _eat_hello(connection)
    await _send_all(connection, encode_ready())
    return rest, purpose


async def _eat_hello(connection: trio.socket.SocketType) -> None:
    with trio.move_on_after(HELLO_SECONDS):
        while True:
            peeked = await connection.recv(HELLO_BYTES, socket.MSG_PEEK)
            if len(peeked) in {0, HELLO_BYTES}:
                break
            await trio.sleep(HELLO_SECONDS / 10)
        if is_client_hello(peeked):
            await connection.recv(HELLO_BYTES)


async def _send_all(connection: trio.socket.SocketType, data: bytes) -> None:
    while data:
        data = data[await connection.send(data) :]
