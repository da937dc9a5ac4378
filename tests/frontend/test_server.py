"""The whole server: drains, and the real template worker."""

from __future__ import annotations

from support.http_client import json_request, running_openai
from support.openai_bodies import (
    COMPLETION,
    completion,
    text_of,
)
from support.scripted_backend import (
    Gate,
    ScriptedBackend,
)


async def test_a_drain_lets_a_stream_finish() -> None:
    gate = Gate()
    backend = ScriptedBackend([["a", gate, "b"]])
    async with running_openai(backend) as running:
        client = await running.connect()
        await client.send(json_request(COMPLETION, completion(stream=True)))
        await gate.reached.wait()
        running.server.begin_drain()
        gate.opened.set()
        assert text_of((await client.reply(method="POST")).body) == "ab"
        assert await client.read_to_end() == b""
