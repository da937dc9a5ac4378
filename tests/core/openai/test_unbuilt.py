from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from openai.types import completion_create_params as completion_params
from openai.types.chat import completion_create_params as chat_params

from skippyd.core.openai.errors import ApiRefusedError
from skippyd.core.openai.fields import FieldReader
from skippyd.core.openai.requests import CHAT_FIELDS, COMPLETION_FIELDS
from skippyd.core.openai.unbuilt import (
    CHAT_UNBUILT,
    COMPLETION_UNBUILT,
    MESSAGE_UNBUILT,
    Unbuilt,
    refuse_unbuilt,
    refuse_unknown,
)


if TYPE_CHECKING:
    from collections.abc import Mapping


TABLES: list[Mapping[str, Unbuilt]] = [
    CHAT_UNBUILT,
    COMPLETION_UNBUILT,
    MESSAGE_UNBUILT,
]


@pytest.mark.parametrize("table", TABLES)
def test_neutral_values_and_null_ask_for_nothing(table: Mapping[str, Unbuilt]) -> None:
    for name, field in table.items():
        for value in (None, *field.neutral):
            refuse_unbuilt(FieldReader({name: value}), table)
    assert table


@pytest.mark.parametrize("table", TABLES)
def test_every_other_value_is_refused_by_name(table: Mapping[str, Unbuilt]) -> None:
    for name in table:
        with pytest.raises(ApiRefusedError) as refused:
            refuse_unbuilt(FieldReader({name: {"some": "thing"}}), table)
        error = refused.value.error
        assert (error.code, error.param) == ("unsupported_model_feature", name)
        assert f"{name} = " in error.message
        assert "is not supported yet" in error.message


def test_every_field_of_the_official_client_is_known() -> None:
    chat = set(chat_params.CompletionCreateParamsBase.__annotations__)
    completion = set(completion_params.CompletionCreateParamsBase.__annotations__)
    assert chat - CHAT_FIELDS == set()
    assert completion - COMPLETION_FIELDS == set()


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("n", 0, "invalid_value"),
        ("n", 2, "unsupported_model_feature"),
        ("n", True, "unsupported_model_feature"),
        ("presence_penalty", -2.5, "invalid_value"),
        ("presence_penalty", 2, "unsupported_model_feature"),
        ("presence_penalty", False, "unsupported_model_feature"),
        ("typical_p", 1.5, "invalid_value"),
        ("store", 0, "unsupported_model_feature"),
        ("tools", {}, "unsupported_model_feature"),
    ],
)
def test_wrong_numbers_are_wrong_before_they_are_unsupported(
    name: str, value: object, code: str
) -> None:
    with pytest.raises(ApiRefusedError) as refused:
        refuse_unbuilt(FieldReader({name: value}), CHAT_UNBUILT)
    assert refused.value.error.code == code


def test_an_unknown_field_gets_the_nearest_right_name() -> None:
    with pytest.raises(ApiRefusedError, match=r"'temprature'; did you mean 'temperat"):
        refuse_unknown(FieldReader({"temprature": 1}), CHAT_FIELDS)
    with pytest.raises(ApiRefusedError) as refused:
        refuse_unknown(FieldReader({"q" * 1000: 1}), CHAT_FIELDS)
    assert len(refused.value.error.message) < 100
