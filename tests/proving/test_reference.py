"""The reference process: the original file, asked for a chat, a text or random tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import pytest

from skippyd.errors import ModelError
from skippyd.proving.reference import (
    ReferenceAnswer,
    ReferenceRequest,
    answer_request,
    ask_reference,
    prompt_tokens,
)
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.unsplit import UnsplitModel
from support.tiny_tokenizer import token_id


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.watchdog(60),
]

SETTINGS = EngineSettings(ctx_size=256)


def request(model: GgufModel, **fields: Any) -> ReferenceRequest:  # noqa: ANN401 - fields of several types
    plain = ReferenceRequest(
        model_path=str(model.path), settings=SETTINGS, chunk=16, limit=6
    )
    return attrs.evolve(plain, **fields)


def same(answer: ReferenceAnswer, other: ReferenceAnswer) -> bool:
    return (answer.prompt, answer.tokens) == (other.prompt, other.tokens) and [
        row.tobytes() for row in answer.rows
    ] == [row.tobytes() for row in other.rows]


def test_a_text_is_tokenized_as_it_is(talking: GgufModel) -> None:
    answer = ask_reference(request(talking, text="hi the<|im_end|>"))
    assert answer.prompt == (
        *b"hi",
        token_id("Ġthe"),
        token_id("<|im_end|>"),
    )
    assert len(answer.tokens) == len(answer.rows) == 6
    assert list(answer.positions) == list(range(3, 9))
    assert [int(row.argmax()) for row in answer.rows] == list(answer.tokens)
    assert answer.finish_reason == "length"
    assert answer.tpot_ms > 0


def test_a_chat_is_rendered_by_the_models_template(talking: GgufModel) -> None:
    text = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    chat = ask_reference(request(talking, chat="hi"))
    plain = ask_reference(request(talking, text=text))
    assert same(chat, plain)


def test_a_model_without_tokenizer_is_fed_tokens_of_a_fixed_seed(
    mute: GgufModel,
) -> None:
    first, second = (ask_reference(request(mute, random_tokens=40)) for _ in range(2))
    assert same(first, second)
    assert len(first.prompt) == 40
    assert len(set(first.prompt)) > 20
    assert all(0 <= token < 320 for token in first.prompt)
    assert first.text == ""


def test_draws_follow_the_sampling_block(talking: GgufModel) -> None:
    sampling = {"flags": 1, "temperature": 1.0, "seed": 4}
    hot, again, other = (
        ask_reference(request(talking, text="x", limit=12, sampling=block))
        for block in (sampling, sampling, sampling | {"seed": 5})
    )
    assert same(hot, again)
    assert hot.tokens != other.tokens


def test_an_end_token_ends_the_answer_when_asked(talking: GgufModel) -> None:
    sampling = {
        "flags": 1,
        "temperature": 0.0,
        "logit_bias": [[token_id("<|im_end|>"), 90.0]],
    }
    stopped = ask_reference(
        request(talking, text="x", stop_at_end=True, sampling=sampling)
    )
    assert stopped.tokens == (token_id("<|im_end|>"),)
    assert (stopped.text, stopped.finish_reason) == ("", "stop")
    going = ask_reference(request(talking, text="x", sampling=sampling))
    assert len(going.tokens) == 6


def test_what_goes_wrong_in_the_process_is_told(
    mute: GgufModel, tmp_path: Path
) -> None:
    missing = request(mute, text="x", model_path=str(tmp_path / "none.gguf"))
    with pytest.raises(ModelError, match=r"ended with 1: .*none\.gguf"):
        ask_reference(missing)
    with pytest.raises(ModelError, match="ended with 1: this model carries no tokeniz"):
        ask_reference(request(mute, text="x"))
    with pytest.raises(ModelError, match="free cells in the KV cache"):
        ask_reference(request(mute, random_tokens=300))


def test_answers_in_this_process_are_the_same(mute: GgufModel) -> None:
    """The process only carries; what computes is `UnsplitModel`."""
    asked = request(mute, random_tokens=20)
    carried = ask_reference(asked)
    with UnsplitModel(mute.path, SETTINGS) as model:
        prompt = prompt_tokens(asked, model.vocabulary)
        rows = list(model.generate(prompt, chunk=16, limit=6, sampling=None))
    assert tuple(prompt) == carried.prompt
    assert [row.logits.tobytes() for row in rows] == [r.tobytes() for r in carried.rows]


def test_the_request_is_plain_json(mute: GgufModel) -> None:
    """What travels to the process is what `answer_request` takes."""
    import json  # noqa: PLC0415 - only here
    import os  # noqa: PLC0415 - only here

    sink = os.open(os.devnull, os.O_WRONLY)
    document = attrs.asdict(request(mute, random_tokens=3)) | {"logits_fd": sink}
    answer = answer_request(json.loads(json.dumps(document)))
    os.close(sink)
    assert answer["finish_reason"] == "length"
    assert np.isfinite(float(str(answer["tpot_ms"])))
