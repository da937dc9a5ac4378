"""Asking a chain for its health at its first stage, whatever answers there."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from skippyd.coordination.failover_health import ASK_SECONDS, is_chain_serving
from skippyd.coordination.ports import Route
from skippyd.ids import NodeId, RunId


def route_to(port: int) -> Route:
    return Route(
        model_id="m",
        run_id=RunId("r"),
        term=1,
        coordinator_id=NodeId("a"),
        openai_base_url=f"http://127.0.0.1:{port}/v1",
    )


async def asked(answer: bytes | None) -> bool:
    """Ask a server that says certain bytes; None never says anything."""

    async def serve(stream: trio.SocketStream) -> None:
        request = await stream.receive_some(4096)
        assert request.startswith(b"GET /health HTTP/1.1\r\n")
        if answer is None:
            await trio.sleep_forever()
        await stream.send_all(answer or b"")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        )
        port = listeners[0].socket.getsockname()[1]
        is_serving = await is_chain_serving(route_to(port))
        nursery.cancel_scope.cancel()
    return is_serving


@pytest.mark.parametrize(
    ("answer", "is_serving"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", True),
        (b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\n{}", False),
        (b"HTTP/1.1 200", False),
        (b"", False),
        (b"SSH-2.0-OpenSSH_9\r\n", False),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 40_000, False),
    ],
)
async def test_only_a_green_health_counts(answer: bytes, is_serving: bool) -> None:
    assert await asked(answer) is is_serving


async def test_nobody_there_is_no() -> None:
    assert not await is_chain_serving(route_to(1))


async def test_an_address_without_a_host_is_no() -> None:
    route = Route(
        model_id="m",
        run_id=RunId("r"),
        term=1,
        coordinator_id=NodeId("a"),
        openai_base_url="nonsense",
    )
    assert not await is_chain_serving(route)


@pytest.mark.slow
async def test_silence_is_not_waited_for_long() -> None:
    at = trio.current_time()
    assert not await asked(None)
    assert ASK_SECONDS <= trio.current_time() - at < ASK_SECONDS + 2
