"""Asks a chain's first stage whether the chain answers, without its coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import h11
import trio


if TYPE_CHECKING:
    from skippyd.coordination.ports import Route

ASK_SECONDS = 3.0
HEAD_MAX_BYTES = 16_384
READ_BYTES = 4_096
HTTP_OK = 200
DEFAULT_PORT = 80


async def is_chain_serving(route: Route) -> bool:
    """Ask `/health` at a route's first stage; no or a bad answer counts as no."""
    parts = urlsplit(route.openai_base_url)
    if parts.hostname is None:
        return False
    with trio.move_on_after(ASK_SECONDS):
        try:
            stream = await trio.open_tcp_stream(
                parts.hostname, parts.port or DEFAULT_PORT
            )
            async with stream:
                return await _ask(stream, parts.netloc) == HTTP_OK
        except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError):
            return False
    return False


async def _ask(stream: trio.SocketStream, host: str) -> int | None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX_BYTES)
    request = h11.Request(
        method="GET",
        target="/health",
        headers=[("host", host), ("connection", "close")],
    )
    data = connection.send(request) or b""
    await stream.send_all(data + (connection.send(h11.EndOfMessage()) or b""))
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Response):
            return event.status_code
        if isinstance(event, h11.ConnectionClosed):
            return None
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(READ_BYTES))
