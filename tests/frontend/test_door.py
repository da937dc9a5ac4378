"""The front door on real sockets: it follows routes, streams through, says what is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.frontend.door import DoorPaces
from skippyd.frontend.door_keys import DoorKeys
from skippyd.ids import NodeId, RunId
from skippyd.net.http_values import HttpResponse
from support.front_door import Losses, Upstream, route_to, running_door, table
from support.http_client import (
    RawClient,
    json_request,
    open_listener,
    port_of,
    running_http,
    running_openai,
)
from support.openai_bodies import CHAT, COMPLETION, MODEL, chat, completion, text_of
from support.scripted_backend import ScriptedBackend


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.net.http_exchange import Exchange
    from skippyd.net.http_values import HttpRequest

A, B = NodeId("a"), NodeId("b")
KEY = "0123456789abcdef-key"


async def test_an_answer_comes_through_as_the_first_stage_gives_it() -> None:
    async with (
        running_openai(ScriptedBackend()) as chain,
        running_door(table(route_to(chain.port))) as door,
    ):
        client = await door.connect()
        direct = await (await chain.connect()).post(COMPLETION, completion())
        reply = await client.post(COMPLETION, completion())
        assert reply.status == direct.status == 200
        assert reply.json()["choices"] == direct.json()["choices"]
        streamed = await client.post(CHAT, chat(stream=True))
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert text_of(streamed.body)
        # The connection is kept for the next request.
        assert (await client.get("/health")).json() == {"status": "ok"}


async def test_a_stream_comes_piece_by_piece() -> None:
    upstream = Upstream()
    async with (
        running_http(upstream) as chain,
        running_door(table(route_to(chain.port))) as door,
    ):
        client = await door.connect()
        await client.send(json_request(CHAT, chat(stream=True)))
        seen = await client.read_until(b'{"choices":[]}\n\n')
        assert b" 200 " in seen
        assert not upstream.is_gone.is_set()
        upstream.go.set()
        await client.read_until(b"data: [DONE]")


async def test_the_request_arrives_whole_and_without_the_key(tmp_path: Path) -> None:
    upstream = Upstream()
    upstream.go.set()
    async with running_http(upstream) as chain:
        keys = keys_in(tmp_path)
        async with running_door(table(route_to(chain.port)), keys=keys) as door:
            client = await door.connect()
            body = chat(stream=True, seed=7)
            await client.post(CHAT, body, f"Authorization: Bearer {KEY}")
    (request,) = upstream.got
    assert json.loads(request.body) == body
    assert (request.method, request.path) == ("POST", CHAT)
    assert "authorization" not in request.headers
    assert request.headers["x-request-id"]


async def test_refusals_of_the_first_stage_come_through() -> None:
    async with (
        running_openai(ScriptedBackend()) as chain,
        running_door(table(route_to(chain.port))) as door,
    ):
        client = await door.connect()
        reply = await client.post(CHAT, chat(temperature="hot"))
        assert reply.status == 400
        assert "temperature" in str(reply.error()["message"])
        nameless = await client.post(CHAT, {"messages": []})
        assert nameless.status == 400


async def test_nothing_published_is_503_with_the_reason_and_a_time() -> None:
    routes = table()
    routes.note(MODEL, "load: loading stage-1, layers 10 to 20")
    async with running_door(routes) as door:
        client = await door.connect()
        reply = await client.post(CHAT, chat())
        assert reply.status == 503
        assert reply.headers["retry-after"] == "1"
        assert reply.error()["code"] == "service_unavailable"
        assert "loading stage-1" in str(reply.error()["message"])
        health = await client.get("/health")
        assert (health.status, health.json()["status"]) == (503, "loading")
        assert (await client.get("/v1/models")).json()["data"] == []


async def test_another_model_is_404_unless_it_is_on_its_way() -> None:
    routes = table(route_to(1))
    routes.note("other", "prove: all stages are ready")
    async with running_door(routes) as door:
        client = await door.connect()
        reply = await client.post(CHAT, chat(model="unknown"))
        assert (reply.status, reply.error()["code"]) == (404, "model_not_found")
        waiting = await client.post(CHAT, chat(model="other"))
        assert waiting.status == 503
        assert "all stages are ready" in str(waiting.error()["message"])


async def test_models_of_all_routes_are_listed() -> None:
    async with running_door(table(route_to(1, "x"), route_to(2, "y"))) as door:
        client = await door.connect()
        listed = (await client.get("/v1/models")).json()["data"]
        assert isinstance(listed, list)
        assert [model["id"] for model in listed] == ["x", "y"]
        assert (await client.get("/v1/models/y")).json()["id"] == "y"
        assert (await client.get("/v1/models/z")).status == 404


async def test_a_newer_route_is_followed_at_once() -> None:
    async with running_openai(ScriptedBackend()) as chain:
        routes = table(route_to(1))
        async with running_door(routes) as door:
            client = await door.connect()
            assert (await client.post(COMPLETION, completion())).status == 503
            routes.hear(B, route_to(chain.port, term=2), MODEL)
            assert (await client.post(COMPLETION, completion())).status == 200


async def test_a_first_stage_that_cannot_be_reached_is_named() -> None:
    async with running_door(table(route_to(1))) as door:
        client = await door.connect()
        reply = await client.post(CHAT, chat())
        assert reply.status == 503
        assert reply.headers["retry-after"] == "1"
        assert f"first stage of {MODEL} on node b" in str(reply.error()["message"])
        health = (await client.get("/health")).json()
        assert (health["status"], health["stage"]) == ("degraded", 0)


async def cut_off(after: bytes) -> RunningAnswer:
    """Let a first stage die after some bytes; return what the client gets."""
    listener = await open_listener()

    async def die(stream: trio.SocketStream) -> None:
        await stream.receive_some(65_536)
        await stream.send_all(after)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, die, [listener])
        async with running_door(table(route_to(port_of(listener)))) as door:
            client = await door.connect()
            answer = await RunningAnswer.read(client)
        nursery.cancel_scope.cancel()
    return answer


@attrs.frozen
class RunningAnswer:
    """Status and body of a streamed answer."""

    status: int
    body: bytes

    @classmethod
    async def read(cls, client: RawClient) -> RunningAnswer:
        reply = await client.post(CHAT, chat(stream=True))
        return cls(reply.status, reply.body)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


@pytest.mark.parametrize(
    "said",
    [b"", b"HTTP/1.1 200 OK\r\nconte", b"nonsense\r\n\r\n"],
)
async def test_a_first_stage_that_dies_before_it_answers_is_a_typed_error(
    said: bytes,
) -> None:
    answer = await cut_off(said)
    assert answer.status == 502
    error = json.loads(answer.body)["error"]
    assert error["code"] == "service_unavailable"
    assert error["message"].startswith("stage 0: stage lost: the first stage of")


async def test_a_first_stage_that_dies_in_its_stream_ends_it_with_an_error() -> None:
    begun = b"transfer-encoding: chunked\r\n\r\n8\r\ndata: x\n\r\n"
    answer = await cut_off(HEAD + begun)
    assert answer.status == 200
    assert answer.body.startswith(b"data: x\n")
    assert b"stage 0: stage lost" in answer.body
    assert b"middle of its answer" in answer.body or b"is no HTTP" in answer.body


async def test_a_lost_node_ends_its_requests_though_the_wire_is_silent() -> None:
    upstream, losses = Upstream(), Losses()
    paces = DoorPaces(lost_silence_s=0.05, look_s=0.01)
    async with running_http(upstream) as chain:
        routes = table(route_to(chain.port), losses=losses)
        async with running_door(routes, paces=paces) as door:
            client = await door.connect()
            await client.send(json_request(CHAT, chat(stream=True)))
            await client.read_until(b'{"choices":[]}\n\n')
            assert routes.use_count(RunId("run-1")) == 1
            losses.reasons[B] = "nothing heard for 10 s"
            end = await client.read_until(b"[DONE]")
            assert b"stage lost" in end
            assert b"nothing heard for 10 s" in end
            with trio.fail_after(5):
                await upstream.is_gone.wait()
    assert routes.use_count(RunId("run-1")) == 0


async def test_a_chain_that_answers_without_its_coordinator_keeps_its_requests() -> (
    None
):
    upstream, losses = Upstream(health=200), Losses({B: "nothing heard for 10 s"})
    paces = DoorPaces(lost_silence_s=0.01, look_s=0.01)
    async with (
        running_http(upstream) as chain,
        running_door(table(route_to(chain.port), losses=losses), paces=paces) as door,
    ):
        client = await door.connect()
        await client.send(json_request(CHAT, chat(stream=True)))
        await client.read_until(b'{"choices":[]}\n\n')
        # Many looks at the health later the request still stands.
        with trio.fail_after(5):
            await upstream.asked_often.wait()
        upstream.go.set()
        assert b"error" not in await client.read_until(b"data: [DONE]")


async def test_a_silent_first_stage_is_given_up() -> None:
    paces = DoorPaces(silence_s=0.05, look_s=0.01)
    upstream = Upstream()
    async with (
        running_http(upstream) as chain,
        running_door(table(route_to(chain.port)), paces=paces) as door,
    ):
        client = await door.connect()
        await client.send(json_request(CHAT, chat(stream=True)))
        assert b"timeout" in await client.read_until(b"[DONE]")


async def test_a_client_that_hangs_up_ends_the_generation() -> None:
    upstream = Upstream()
    async with (
        running_http(upstream) as chain,
        running_door(table(route_to(chain.port))) as door,
    ):
        client = await door.connect()
        await client.send(json_request(CHAT, chat(stream=True)))
        await client.read_until(b'{"choices":[]}\n\n')
        await client.stream.aclose()
        with trio.fail_after(5):
            await upstream.is_gone.wait()
    assert upstream.is_gone.is_set()


def keys_in(folder: Path) -> DoorKeys:
    path = folder / "keys"
    path.write_text(f"# ours\n\n{KEY}\nanother-key-of-ours\n")
    path.chmod(0o600)
    return DoorKeys.load(path)


async def test_without_a_key_only_health_is_answered(tmp_path: Path) -> None:
    async with running_door(table(), keys=keys_in(tmp_path)) as door:
        client = await door.connect()
        for header in ((), ("Authorization: Bearer wrong-key-of-nobody",)):
            reply = await client.get("/v1/models", *header)
            assert (reply.status, reply.error()["code"]) == (401, "invalid_api_key")
            assert reply.headers["www-authenticate"] == "Bearer"
        right = await client.get("/v1/models", f"Authorization: Bearer {KEY}")
        assert right.status == 200
        assert (await client.get("/health")).status == 503


async def test_unknown_paths_and_wrong_methods_are_refused() -> None:
    async with running_door(table(route_to(1))) as door:
        client = await door.connect()
        assert (await client.get("/v1/embeddings")).status == 404
        wrong = await client.get(CHAT)
        assert (wrong.status, wrong.headers["allow"]) == (405, "POST")
        assert (await client.post("/health", {})).status == 405
        broken = await client.post(CHAT, b"{")
        assert (broken.status, broken.error()["code"]) == (400, "invalid_value")


async def test_a_body_too_large_for_the_loop_is_read_in_a_thread() -> None:
    async def count(request: HttpRequest, exchange: Exchange) -> None:
        await exchange.respond(HttpResponse(200, str(len(request.body)).encode()))

    async with (
        running_http(count) as chain,
        running_door(table(route_to(chain.port))) as door,
    ):
        body = json.dumps(completion(prompt="x" * 600_000)).encode()
        reply = await (await door.connect()).post(COMPLETION, body)
        assert (reply.status, reply.body) == (200, str(len(body)).encode())
