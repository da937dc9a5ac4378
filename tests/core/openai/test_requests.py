from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.openai.errors import ApiRefusedError
from skippyd.core.openai.messages import Message
from skippyd.core.openai.requests import (
    CHAT_FIELDS,
    AnswerFields,
    ChatRequest,
    CompletionRequest,
    SamplingFields,
    is_same_model,
    parse_chat_request,
    parse_completion_request,
)


CHAT: dict[str, object] = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hi"}],
}
COMPLETION: dict[str, object] = {"model": "m", "prompt": "Once"}


def answer_of(**fields: object) -> AnswerFields:
    return parse_chat_request({**CHAT, **fields}).answer


def refusal_of(**fields: object) -> tuple[str, str, str | None]:
    with pytest.raises(ApiRefusedError) as refused:
        parse_chat_request({**CHAT, **fields})
    error = refused.value.error
    return error.code, error.message, error.param


def test_the_defaults_are_those_of_the_openai_path() -> None:
    """skippy-facts 5.3: temperature 0.8, top_p 0.95, top_k 40, min_p 0.05."""
    sampling = SamplingFields(0.8, 0.95, top_k=40, min_p=0.05, seed=None)
    answer = AnswerFields(
        "m", None, stops=(), sampling=sampling, stream=False, include_usage=False
    )
    assert parse_chat_request(CHAT) == ChatRequest((Message("user", "Hi"),), answer)
    assert parse_completion_request(COMPLETION) == CompletionRequest("Once", answer)


def test_every_built_field_is_read() -> None:
    answer = answer_of(
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
        max_tokens=7,
        temperature=0,
        top_p=1,
        top_k=0,
        min_p=0.25,
        seed=4_294_967_294,
        stop=["a", "b"],
    )
    assert answer == AnswerFields(
        "m",
        7,
        stops=("a", "b"),
        sampling=SamplingFields(0.0, 1.0, top_k=0, min_p=0.25, seed=4_294_967_294),
        stream=True,
        include_usage=True,
    )


def test_the_newer_ceiling_wins_over_the_older() -> None:
    assert answer_of(max_tokens=5, max_completion_tokens=9).max_tokens == 9
    assert answer_of(max_completion_tokens=9).max_tokens == 9
    assert answer_of(max_tokens=5).max_tokens == 5


def test_the_seed_that_llama_cpp_reads_as_random_gets_a_stand_in() -> None:
    """Contract, "Wire": 0xFFFFFFFF becomes 0x7FFFFFFF."""
    assert answer_of(seed=0xFFFFFFFF).sampling.seed == 0x7FFFFFFF
    assert answer_of(seed=0).sampling.seed == 0


def test_one_stop_text_may_stand_alone() -> None:
    assert answer_of(stop="x").stops == ("x",)
    assert answer_of(stop=[]).stops == ()
    assert answer_of(stop=["x"] * 16).stops == ("x",) * 16


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": " "}, "model"),
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"model": "m" * 513}, "model"),
        ({"messages": []}, "messages"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": 5}, "stream_options"),
        ({"stream": True, "stream_options": {"include": 1}}, "include"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 101}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 2**31}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stop": "x" * 1025}, "stop"),
        ({"stop": "\ud800"}, "stop"),
        ({"n": 0}, "n"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": []}, "top_logprobs"),
        ({"prompt": "x"}, "prompt"),
    ],
)
def test_a_wrong_value_is_refused_by_its_field(
    fields: dict[str, object], param: str
) -> None:
    code, message, named = refusal_of(**fields)
    assert (code, named) == ("invalid_value", param)
    assert param in message


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"logprobs": True, "top_logprobs": 2},
        {"response_format": {"type": "json_object"}},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"user": "someone"},
        {"metadata": {"a": "b"}},
        {"store": True},
        {"logit_bias": {"1": 1}},
        {"repeat_penalty": 1.1},
        {"grammar": "root ::= x"},
        {"stream": True, "stream_options": {"include_obfuscation": True}},
    ],
)
def test_a_known_field_that_is_not_built_is_refused(fields: dict[str, object]) -> None:
    code, message, _ = refusal_of(**fields)
    assert code == "unsupported_model_feature"
    assert "not supported yet" in message


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"prompt": ""}, "invalid_value"),
        ({"prompt": None}, "invalid_value"),
        ({"prompt": 5}, "invalid_value"),
        ({"prompt": ["a"]}, "unsupported_model_feature"),
        ({"prompt": [1, 2]}, "unsupported_model_feature"),
        ({"echo": True}, "unsupported_model_feature"),
        ({"suffix": "x"}, "unsupported_model_feature"),
        ({"best_of": 2}, "unsupported_model_feature"),
        ({"best_of": 0}, "invalid_value"),
        ({"logprobs": 0}, "unsupported_model_feature"),
        ({"max_completion_tokens": 5}, "invalid_value"),
        ({"messages": []}, "invalid_value"),
    ],
)
def test_a_wrong_completion_is_refused(fields: dict[str, object], code: str) -> None:
    with pytest.raises(ApiRefusedError) as refused:
        parse_completion_request({**COMPLETION, **fields})
    assert refused.value.error.code == code


@pytest.mark.parametrize(
    ("asked", "served", "expected"),
    [
        ("org/repo:Q4", "org/repo:Q4", True),
        ("org/repo@main:Q4", "org/repo:Q4", True),
        ("org/repo:Q4", "org/repo@main:Q4", True),
        ("org/repo@main", "org/repo", True),
        ("org/repo@mainline", "org/repo", False),
        ("org/repo@main2:Q4", "org/repo:Q4", False),
        ("org/repo", "org/repo:Q4", False),
    ],
)
def test_the_main_revision_may_be_said_or_left_out(
    asked: str, served: str, *, expected: bool
) -> None:
    """skippy-facts 5.3: equal after removing `@main` at a boundary."""
    assert is_same_model(asked, served) is expected


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(sorted(CHAT_FIELDS)) | st.text(max_size=6),
        JSON_VALUES,
        max_size=4,
    )
)
def test_any_object_is_a_request_within_its_ranges_or_a_refusal(
    fields: dict[str, object],
) -> None:
    outcome = _outcome({**CHAT, **fields})
    if isinstance(outcome, int):
        assert outcome == 400
        return
    sampling = outcome.sampling
    assert 0 <= sampling.temperature <= 100
    assert 0 <= sampling.top_p <= 1
    assert 0 <= sampling.top_k < 2**31
    assert sampling.seed is None or 0 <= sampling.seed < 2**32 - 1
    assert outcome.max_tokens is None or outcome.max_tokens >= 1


def _outcome(body: dict[str, object]) -> AnswerFields | int:
    try:
        return parse_chat_request(body).answer
    except ApiRefusedError as refused:
        # A refusal can always be sent, whatever was in the body.
        refused.error.body()
        return refused.error.status
