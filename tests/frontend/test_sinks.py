"""One answer as a document and as events says the same."""

from __future__ import annotations

from support.http_client import json_request, running_openai
from support.openai_bodies import (
    CHAT,
    COMPLETION,
    MODEL,
    chat,
    completion,
    events,
    text_of,
)
from support.scripted_backend import (
    Gate,
    ScriptedBackend,
    Step,
)


async def test_a_chat_is_answered_in_one_document() -> None:
    backend = ScriptedBackend([["Hel", "lo é"]])
    async with running_openai(backend) as running:
        reply = await (await running.connect()).post(CHAT, chat())
    assert reply.status == 200
    assert reply.json() == {
        "id": "chatcmpl-1700000000123",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello é"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            # Four control tokens, 8 bytes of the user's turn, 11 of the assistant's.
            "prompt_tokens": 23,
            "completion_tokens": 9,
            "total_tokens": 32,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "seed": 4242,
    }


async def test_a_streamed_chat_says_the_same_as_a_whole_one() -> None:
    script: list[Step] = ["Hel", b"lo \xc3", b"\xa9"]
    backend = ScriptedBackend([list(script), list(script)])
    async with running_openai(backend) as running:
        client = await running.connect()
        reply = await client.post(
            CHAT, chat(stream=True, stream_options={"include_usage": True})
        )
        whole = (await client.post(CHAT, chat())).json()
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert text_of(reply.body) == "Hello é"
    assert whole["choices"][0]["message"]["content"] == "Hello é"  # type: ignore[index]
    first, *_, last, usage = events(reply.body)
    assert first["choices"][0]["delta"] == {"role": "assistant"}  # type: ignore[index]
    assert last["choices"][0]["finish_reason"] == "stop"  # type: ignore[index]
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]


async def test_a_completion_streams_without_a_role() -> None:
    async with running_openai(ScriptedBackend([["ab"]])) as running:
        reply = await (await running.connect()).post(
            COMPLETION, completion(stream=True)
        )
    assert text_of(reply.body) == "ab"
    assert b"role" not in reply.body
    assert b"usage" not in reply.body
    assert [event["object"] for event in events(reply.body)] == ["text_completion"] * 3


async def test_a_stream_is_pinged_while_the_chain_prefills() -> None:
    gate = Gate()
    backend = ScriptedBackend([[gate, "x"]])
    async with running_openai(backend, ping_every_s=0.02) as running:
        client = await running.connect()
        await client.send(json_request(CHAT, chat(stream=True)))
        seen = await client.read_until(b": ping\n\n")
        assert seen.startswith(b"HTTP/1.1 200 ")
        assert b"data:" not in seen
        gate.opened.set()
        assert b"[DONE]" in await client.read_until(b"0\r\n\r\n")
