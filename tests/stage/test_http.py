"""What one stage shows of itself over HTTP."""

from __future__ import annotations

import json
import socket

import pytest
import trio

from skippyd.stage.http import StageDiagnostics, serve_diagnostics
from skippyd.stage.node import StageNode
from support.chat_call import Answer, get
from support.scripted_runtime import ScriptedRuntime
from support.stage_room import config_of, topology_of


async def shown(path: str, *, told: bool = True) -> Answer:
    """The answer of stage 1 of three."""
    ports = [1, 2, 3]
    node = StageNode(
        config=config_of(1, ports),
        runtime=ScriptedRuntime(index=1, is_final=False),
        topology=topology_of(ports) if told else None,
    )
    plain = socket.create_server(("127.0.0.1", 0))
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(plain))
    port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(serve_diagnostics, StageDiagnostics(node), listener)
        answer = await trio.to_thread.run_sync(get, port, path)
        nursery.cancel_scope.cancel()
    return answer


async def test_health_and_readiness() -> None:
    assert (await shown("/health")).document == {"status": "ok"}
    ready = (await shown("/ready")).document
    assert ready == {
        "run_id": "r",
        "topology_id": "t",
        "stage_id": "stage-1",
        "stage_index": 1,
        "ready": True,
    }


@pytest.mark.parametrize(("told", "count"), [(True, 3), (False, None)])
async def test_status_tells_what_is_held(told: bool, count: int | None) -> None:
    status = (await shown("/v1/status", told=told)).document
    assert status["layer_start"] == 1
    assert status["topology_stage_count"] == count
    assert status["sessions"] == 0
    nanos = status["started_at_unix_nanos"]
    assert isinstance(nanos, str), "64-bit integers are strings in JSON"
    assert int(nanos) > 10**18
    assert json.dumps(status)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/v1/messages", 400, "/v1/messages is not supported yet"),
        ("/v1/text", 400, "not supported yet"),
        ("/nothing", 404, "try /health, /ready, /v1/status"),
    ],
)
async def test_what_is_not_there_says_what_is(
    path: str, status: int, words: str
) -> None:
    answer = await shown(path)
    assert answer.status == status
    assert words in str(answer.document["error"])
