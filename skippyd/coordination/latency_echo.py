"""The way between two nodes' stages, measured where stages talk: a small TCP echo.

Each node opens a responder on the address of its stages.  It answers a few short
messages and closes; it holds nothing and knows nobody, so it needs no identity.
"""

from __future__ import annotations

import logging
import socket
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import trio


if TYPE_CHECKING:
    from collections.abc import Mapping

    from skippyd.config.endpoints import Endpoint
    from skippyd.ids import NodeId

logger = logging.getLogger(__name__)

MESSAGE = b"skippy-latency-1"
ROUND_TRIPS = 8
CONNECTION_S = 5.0
MEASURE_S = 3.0
MOST_CONNECTIONS = 32

_MS_PER_S = 1000
_UNSPECIFIED = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound


async def serve_latency_echo(
    host: str,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer measurements on a free port of `host` until cancelled.

    Args:
        host: Numeric address of this node's stages.
        task_status: Gets the port.
    """
    listeners = await trio.open_tcp_listeners(0, host=host)
    # A name may have two addresses; stages of a node have one.
    for listener in listeners[1:]:
        await listener.aclose()
    places = trio.CapacityLimiter(MOST_CONNECTIONS)
    async with trio.open_nursery() as nursery:
        task_status.started(int(listeners[0].socket.getsockname()[1]))
        handler = partial(_echo, places=places)
        await trio.serve_listeners(handler, listeners[:1], handler_nursery=nursery)


async def measure_latencies_ms(
    targets: Mapping[NodeId, Endpoint], *, source_host: str
) -> dict[NodeId, float]:
    """Measure the way to each target; one that does not answer is left out.

    Args:
        targets: Where the responders of other nodes are.
        source_host: Own address to leave from, the one that stages leave from.

    Returns:
        Milliseconds one way: half of the median round trip.
    """
    measured: dict[NodeId, float] = {}

    async def measure(node_id: NodeId, target: Endpoint) -> None:
        with trio.move_on_after(MEASURE_S):
            try:
                measured[node_id] = await _one_way_ms(target, source_host)
            except (OSError, trio.BrokenResourceError) as error:
                logger.info(
                    "event=latency_not_measured target=%s reason=%r", target, str(error)
                )

    async with trio.open_nursery() as nursery:
        for node_id, target in targets.items():
            nursery.start_soon(measure, node_id, target)
    return measured


async def _one_way_ms(target: Endpoint, source_host: str) -> float:
    local = None if source_host in _UNSPECIFIED else source_host
    trips: list[float] = []
    async with await trio.open_tcp_stream(
        target.host, target.port, local_address=local
    ) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUND_TRIPS):
            begun = trio.current_time()
            await stream.send_all(MESSAGE)
            if await _received(stream) != MESSAGE:
                raise trio.BrokenResourceError("answers something else")
            trips.append(trio.current_time() - begun)
    return median(trips) * _MS_PER_S / 2


async def _echo(stream: trio.SocketStream, *, places: trio.CapacityLimiter) -> None:
    try:
        places.acquire_nowait()
    except trio.WouldBlock:
        await trio.aclose_forcefully(stream)
        return
    try:
        with trio.move_on_after(CONNECTION_S):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(ROUND_TRIPS):
                if await _received(stream) != MESSAGE:
                    return
                await stream.send_all(MESSAGE)
    except (OSError, trio.BrokenResourceError) as error:
        logger.debug("event=latency_peer_gone reason=%r", str(error))
    finally:
        places.release()
        await trio.aclose_forcefully(stream)


async def _received(stream: trio.SocketStream) -> bytes:
    received = b""
    while len(received) < len(MESSAGE):
        part = await stream.receive_some(len(MESSAGE) - len(received))
        if not part:
            break
        received += part
    return received
