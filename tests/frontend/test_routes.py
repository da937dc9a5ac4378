"""Paths, methods, bodies and health: what reaches a generation and what does not."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from skippyd.frontend.backend import ChainHealth
from skippyd.net.http_values import HttpLimits
from support.http_client import request_bytes, running_openai
from support.openai_bodies import (
    CHAT,
    COMPLETION,
    MODEL,
    chat,
    completion,
)
from support.scripted_backend import (
    ScriptedBackend,
)


async def test_health_is_green_only_when_the_chain_is_ok() -> None:
    backend = ScriptedBackend()
    async with running_openai(backend) as running:
        client = await running.connect()
        for path in ("/health", "/healthz"):
            reply = await client.get(path)
            assert (reply.status, reply.json()) == (200, {"status": "ok"})
        backend.state = ChainHealth("degraded", 1, "stage 1 lost: restart it")
        reply = await client.get("/health")
        assert reply.status == 503
        assert reply.json() == {
            "status": "degraded",
            "stage": 1,
            "reason": "stage 1 lost: restart it",
        }


async def test_a_chain_that_is_not_ok_refuses_generations_with_the_reason() -> None:
    backend = ScriptedBackend(state=ChainHealth("loading", 2, "loading layers"))
    async with running_openai(backend) as running:
        client = await running.connect()
        for path, body in ((CHAT, chat()), (COMPLETION, completion())):
            reply = await client.post(path, body)
            assert reply.status == 503
            assert reply.headers["retry-after"] == "1"
            assert reply.error()["code"] == "service_unavailable"
            assert "loading at stage 2: loading layers" in str(reply.error())


async def test_the_model_list_and_one_model() -> None:
    async with running_openai(ScriptedBackend()) as running:
        client = await running.connect()
        listed = (await client.get("/v1/models")).json()
        assert listed["data"] == [
            {
                "id": MODEL,
                "object": "model",
                "created": 1_700_000_000,
                "owned_by": "skippyd",
            }
        ]
        found = await client.get("/v1/models/org%2Fscripted:Q4_K_M")
        assert found.json()["id"] == MODEL
        missing = await client.get("/v1/models/other")
        assert missing.status == 404
        assert missing.error()["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (chat(model="other"), 404, "model_not_found"),
        (chat(model="org/scripted@main:Q4_K_M"), 200, ""),
        (chat(temprature=1), 400, "invalid_value"),
        (chat(tools=[{}]), 400, "unsupported_model_feature"),
        (chat(messages=[{"role": "user", "content": "x" * 600}]), *(400, "context")),
        (b"{", 400, "invalid_value"),
        (b'{"a":' * 50_000, 400, "invalid_value"),
        (b'{"temperature": NaN}', 400, "invalid_value"),
        (b"[" + b"1," * 200_000 + b"1]", 400, "invalid_value"),
    ],
)
async def test_a_bad_request_is_refused_with_its_code(
    body: object, status: int, code: str
) -> None:
    async with running_openai(ScriptedBackend()) as running:
        reply = await (await running.connect()).post(CHAT, body)
    assert reply.status == status
    if code:
        assert str(reply.error()["code"]).startswith(code)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Content-Type: text/plain", 415),
        ("Content-Type: application/json; charset=utf-8", 200),
        ("Content-Type: application/json\r\nContent-Encoding: gzip", 415),
        ("Content-Type: application/x-www-form-urlencoded", 415),
    ],
)
async def test_only_plain_json_is_read(header: str, status: int) -> None:
    async with running_openai(ScriptedBackend()) as running:
        client = await running.connect()
        body = json.dumps(chat()).encode()
        await client.send(request_bytes("POST", CHAT, header, body=body))
        assert (await client.reply(method="POST")).status == status


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/embeddings", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("OPTIONS", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models/x", 405, "method_not_allowed"),
    ],
)
async def test_unknown_paths_and_methods_have_their_codes(
    method: str, path: str, status: int, code: str
) -> None:
    async with running_openai(ScriptedBackend()) as running:
        client = await running.connect()
        await client.send(request_bytes(method, path))
        reply = await client.reply(method=method)
    assert (reply.status, reply.error()["code"]) == (status, code)
    assert ("allow" in reply.headers) == (status == 405)
    assert "access-control-allow-origin" not in reply.headers


async def test_what_the_http_layer_refuses_has_openais_envelope() -> None:
    async with running_openai(
        ScriptedBackend(), limits=HttpLimits(body_bytes=10)
    ) as running:
        reply = await (await running.connect()).post(CHAT, chat())
    assert (reply.status, reply.error()["code"]) == (413, "payload_too_large")
    assert str(UUID(reply.headers["x-request-id"])) == reply.headers["x-request-id"]


async def test_a_request_id_is_kept_when_it_is_a_uuid() -> None:
    mine = "0b4f8a52-9f0e-4a53-9d4b-0f6d4d3d1c11"
    async with running_openai(ScriptedBackend()) as running:
        client = await running.connect()
        kept = await client.get("/health", f"X-Request-Id: {mine}")
        replaced = await client.get("/health", "X-Request-Id: <script>")
    assert kept.headers["x-request-id"] == mine
    assert UUID(replaced.headers["x-request-id"]) != UUID(mine)
