from __future__ import annotations

import pytest

from skippyd.core.openai.errors import ApiRefusedError
from skippyd.core.openai.fields import FieldReader
from skippyd.core.openai.messages import MAX_MESSAGES, Message, read_messages


def read(*messages: object) -> tuple[Message, ...]:
    return read_messages(FieldReader({"messages": list(messages)}))


USER = {"role": "user", "content": "Hi"}


def test_texts_and_lists_of_text_parts_are_read() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": ""},
    ) == (
        Message("system", "Be brief."),
        Message("user", "a\nb"),
        Message("assistant", ""),
    )


def test_developer_is_read_as_system() -> None:
    assert read({"role": "developer", "content": "x"}) == (Message("system", "x"),)


def test_what_the_official_client_dumps_comes_back() -> None:
    """`ChatCompletionMessage.model_dump()` of an earlier answer."""
    dumped = {
        "content": "Hello",
        "refusal": None,
        "role": "assistant",
        "annotations": None,
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }
    assert read(USER, dumped)[1] == Message("assistant", "Hello")


@pytest.mark.parametrize(
    ("message", "code", "text"),
    [
        ("x", "invalid_value", "messages[0] must be an object"),
        ({"content": "x"}, "invalid_value", "messages[0].role is missing"),
        ({"role": "users", "content": "x"}, "invalid_value", "must be one of"),
        ({"role": 5, "content": "x"}, "invalid_value", "role must be a string"),
        ({"role": "user"}, "invalid_value", "messages[0].content is missing"),
        ({"role": "user", "content": 5}, "invalid_value", "must be a string"),
        ({"role": "user", "content": [5]}, "invalid_value", "content[0] must be"),
        ({"role": "user", "content": [{}]}, "invalid_value", "[0].type is missing"),
        (
            {"role": "user", "content": [{"type": "text"}]},
            *("invalid_value", "content[0].text is missing"),
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": "x", "y": 1}]},
            *("invalid_value", "unknown field messages[0].content[0].'y'"),
        ),
        ({**USER, "nmae": "x"}, "invalid_value", "did you mean 'name'?"),
        ({**USER, "name": "Ann"}, "unsupported_model_feature", "name = 'Ann'"),
        ({**USER, "tool_calls": [{}]}, "unsupported_model_feature", "tool_calls"),
        (
            {"role": "tool", "content": "x"},
            *("unsupported_model_feature", "role = 'tool' is not supported yet"),
        ),
        (
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "http://x"}}],
            },
            *("unsupported_model_feature", "'image_url' is not supported yet"),
        ),
    ],
)
def test_a_wrong_message_is_refused_by_its_place(
    message: object, code: str, text: str
) -> None:
    with pytest.raises(ApiRefusedError) as refused:
        read(message)
    assert refused.value.error.code == code
    assert text in refused.value.error.message


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (None, "messages is missing"),
        ("Hi", "must be a list"),
        ([], "must hold 1 to"),
        ([USER] * (MAX_MESSAGES + 1), "must hold 1 to"),
        ([{"role": "user", "content": ""}], "produced an empty prompt"),
    ],
)
def test_a_wrong_list_is_refused(messages: object, text: str) -> None:
    with pytest.raises(ApiRefusedError) as refused:
        read_messages(FieldReader({"messages": messages}))
    assert text in refused.value.error.message


def test_too_many_parts_are_refused() -> None:
    parts = [{"type": "text", "text": "a"}] * 4097
    with pytest.raises(ApiRefusedError, match="at most 4096 parts"):
        read({"role": "user", "content": parts})
