"""Request bodies for the OpenAI routes, and readers of their streams."""

from __future__ import annotations

import json


MODEL = "org/scripted:Q4_K_M"


CHAT = "/v1/chat/completions"


COMPLETION = "/v1/completions"


def chat(**fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "Hi"}]
    return {"model": MODEL, "messages": messages, **fields}


def completion(**fields: object) -> dict[str, object]:
    return {"model": MODEL, "prompt": "Once", **fields}


def events(body: bytes) -> list[dict[str, object]]:
    """The events of a complete stream, without its last one."""
    pieces = [piece for piece in body.split(b"\n\n") if piece]
    assert pieces.pop() == b"data: [DONE]"
    return [json.loads(piece.removeprefix(b"data: ")) for piece in pieces]


def text_of(body: bytes) -> str:
    texts: list[str] = []
    for event in events(body):
        choices = event["choices"]
        assert isinstance(choices, list)
        texts += [
            choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            for choice in choices
        ]
    return "".join(texts)
