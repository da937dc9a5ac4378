from __future__ import annotations

import json

from skippyd.core.openai.responses import (
    AnswerHead,
    Usage,
    chat_completion,
    model_document,
    model_list,
    text_completion,
)


HEAD = AnswerHead("chatcmpl-5", 6, model="m", seed=7)
USAGE = Usage(10, 3)


def test_a_chat_answer_has_openais_shape_and_the_seed() -> None:
    body = chat_completion(HEAD, "Hé", finish_reason="stop", usage=USAGE)
    assert json.loads(body) == {
        "id": "chatcmpl-5",
        "object": "chat.completion",
        "created": 6,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hé"},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 3,
            "total_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "seed": 7,
    }


def test_a_completion_has_its_text_in_the_choice() -> None:
    document = json.loads(
        text_completion(HEAD, "x", finish_reason="length", usage=USAGE)
    )
    assert document["object"] == "text_completion"
    assert document["choices"][0]["text"] == "x"
    assert document["choices"][0]["finish_reason"] == "length"


def test_the_model_list_names_what_is_served() -> None:
    assert json.loads(model_list([model_document("m", 5)])) == {
        "object": "list",
        "data": [{"id": "m", "object": "model", "created": 5, "owned_by": "skippyd"}],
    }
