"""The admin socket: JSON-RPC over WebSocket on a Unix socket, for this machine only."""

from __future__ import annotations

import errno
import logging
import os
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.admin.access import Access
from skippyd.admin.schema import PATH
from skippyd.admin.session import AdminSession
from skippyd.net.unix import open_unix_listener, peer_credentials, remove_socket_file
from skippyd.net.websocket import ChannelClosedError, accept_websocket


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.admin.node_view import NodeView

logger = logging.getLogger("skippyd.admin")

GROUP_MODE = 0o660
MAX_CONNECTIONS = 64
"""Operators at once; each is worth some memory and one task."""

ACCEPT_AGAIN_SECONDS = 0.1
_OUT_OF_DESCRIPTORS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
)


@attrs.define(eq=False)
class _Room:
    """How many more connections may be open."""

    left: int = MAX_CONNECTIONS


async def serve_admin(
    path: Path,
    view: NodeView,
    *,
    access: Access | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen on a path until cancelled; started once it is open for connections.

    The file belongs to the readers' group, when this machine has one and this process
    may give files to it.

    Raises:
        SocketInUseError: Another daemon answers on it.
        SocketDeniedError: The folder or the file is not ours to use.
        ConfigError: The path cannot be a socket.
    """
    rule = Access.of_this_machine() if access is None else access
    listener = open_unix_listener(path, mode=GROUP_MODE, gid=_ownable_group(rule))
    try:
        async with listener, trio.open_nursery() as nursery:
            task_status.started()
            await _accept(listener, view, rule, nursery)
    finally:
        remove_socket_file(path)


def _ownable_group(rule: Access) -> int | None:
    gid = rule.readers_gid
    if gid is None or os.geteuid() == 0 or gid in {os.getegid(), *os.getgroups()}:
        return gid
    logger.warning(
        "event=admin_group reason=%r",
        f"this user is not in group {gid}: only it and root can open the socket",
    )
    return None


async def _accept(
    listener: trio.SocketListener, view: NodeView, rule: Access, nursery: trio.Nursery
) -> None:
    room = _Room()
    while True:
        try:
            stream = await listener.accept()
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS:
                raise
            logger.warning("event=admin_accept reason=%r", error.strerror)
            await trio.sleep(ACCEPT_AGAIN_SECONDS)
            continue
        if room.left == 0:
            logger.warning("event=admin_full connections=%d", MAX_CONNECTIONS)
            await trio.aclose_forcefully(stream)
            continue
        room.left -= 1
        nursery.start_soon(_serve, stream, view, rule, room)


async def _serve(
    stream: trio.SocketStream, view: NodeView, rule: Access, room: _Room
) -> None:
    try:
        peer = peer_credentials(stream)
        session = AdminSession(view=view, peer=peer, permission=rule.permission(peer))
        async with accept_websocket(stream, paths={PATH}) as channel:
            reason = await session.run(channel)
        logger.debug("event=admin_closed uid=%d reason=%r", peer.uid, reason)
    except ChannelClosedError as error:
        logger.info("event=admin_dropped reason=%r", str(error))
    # The guard: one connection's fault is not the daemon's end.
    except Exception:
        logger.exception("event=admin_failed")
    finally:
        room.left += 1
        await trio.aclose_forcefully(stream)
