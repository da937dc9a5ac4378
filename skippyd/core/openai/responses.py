"""Documents of a finished answer, of the model list and of health."""

from __future__ import annotations

import json
from typing import Literal

import attrs


FinishReason = Literal["stop", "length"]


@attrs.frozen
class AnswerHead:
    """What every document and event of one answer repeats.

    Args:
        answer_id: `chatcmpl-…` or `cmpl-…`.
        created_unix_s: When the answer was begun.
        model: The served model's name.
        seed: The seed that is really used, given or drawn.  An addition to
            OpenAI's shape: with it the same answer can be had again.
    """

    answer_id: str
    created_unix_s: int
    model: str = attrs.field(kw_only=True)
    seed: int = attrs.field(kw_only=True)


@attrs.frozen
class Usage:
    """Tokens that were worked on."""

    prompt_tokens: int
    completion_tokens: int

    def document(self) -> dict[str, object]:
        """OpenAI's shape; no prompt token is ever taken from a cache yet."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }


def chat_completion(
    head: AnswerHead, text: str, *, finish_reason: FinishReason, usage: Usage
) -> bytes:
    """The document of a chat answer."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "logprobs": None,
        "finish_reason": finish_reason,
    }
    return _answer(head, "chat.completion", choice, usage)


def text_completion(
    head: AnswerHead, text: str, *, finish_reason: FinishReason, usage: Usage
) -> bytes:
    """The document of a continued text."""
    choice = {
        "index": 0,
        "text": text,
        "logprobs": None,
        "finish_reason": finish_reason,
    }
    return _answer(head, "text_completion", choice, usage)


def model_document(model_id: str, created_unix_s: int) -> dict[str, object]:
    """One entry of the model list."""
    return {
        "id": model_id,
        "object": "model",
        "created": created_unix_s,
        "owned_by": "skippyd",
    }


def model_list(models: list[dict[str, object]]) -> bytes:
    """The document of `GET /v1/models`."""
    return json_bytes({"object": "list", "data": models})


def json_bytes(document: dict[str, object]) -> bytes:
    """A document as compact JSON."""
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def _answer(
    head: AnswerHead, kind: str, choice: dict[str, object], usage: Usage
) -> bytes:
    return json_bytes(
        {
            "id": head.answer_id,
            "object": kind,
            "created": head.created_unix_s,
            "model": head.model,
            "choices": [choice],
            "usage": usage.document(),
            "seed": head.seed,
        }
    )
