"""What passes the front door is measured once, on real sockets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from skippyd.coordination.ports import Route
from skippyd.coordination.route import RouteTable
from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.frontend.door import serve_door
from skippyd.frontend.door_measuring import PassageMeter
from skippyd.ids import NodeId, RunId
from support.http_client import RunningServer, open_listener, port_of, running_openai
from support.openai_bodies import CHAT, MODEL, chat
from support.scripted_backend import ScriptedBackend


if TYPE_CHECKING:
    from skippyd.core.telemetry.span import Span

A, B = NodeId("a"), NodeId("b")


def route_to(port: int) -> Route:
    return Route(
        model_id=MODEL,
        run_id=RunId("run-1"),
        term=1,
        coordinator_id=B,
        openai_base_url=f"http://127.0.0.1:{port}/v1",
    )


def nothing_lost(_node_id: NodeId) -> str | None:
    return None


async def test_each_passage_is_measured_once(nursery: trio.Nursery) -> None:
    spans: list[Span] = []
    listener = await open_listener()
    routes = RouteTable(A, nothing_lost)
    async with running_openai(ScriptedBackend()) as chain:
        routes.hear(B, route_to(chain.port), MODEL)
        serve = partial(
            serve_door, [listener], routes, created_unix_s=1, record=spans.append
        )
        running = RunningServer(await nursery.start(serve), port_of(listener), nursery)
        client = await running.connect()
        for body in (chat(stream=True), chat(), chat(max_tokens=-1)):
            await client.post(CHAT, body)
        with trio.fail_after(5):
            while len(spans) < 3:
                # The client has its answer before the door has its figures.
                await trio.lowlevel.checkpoint()
        running.close_clients()
        nursery.cancel_scope.cancel()
    streamed, whole, refused = spans
    statuses = [span.number(Attribute.HTTP_STATUS) for span in spans]
    assert statuses == [200, 200, 400]
    assert {span.name for span in spans} == {SpanName.OPENAI_HTTP_REQUEST}
    assert streamed.number(Attribute.TTFT_MS) is not None
    tokens = [span.number(Attribute.COMPLETION_TOKENS) for span in (streamed, whole)]
    assert tokens[0] == tokens[1]
    assert tokens[0]
    assert refused.attributes[Attribute.RUN_ID] == "run-1"


def test_a_stream_that_breaks_off_is_lost() -> None:
    meter = PassageMeter()
    meter.begun(200)
    meter.piece(b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n')
    span = meter.ended(route_to(1), is_lost=True)
    assert span.attributes[Attribute.HTTP_STATUS] == 502
    assert span.attributes[Attribute.MODEL_ID] == MODEL
