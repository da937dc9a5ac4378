from __future__ import annotations

import pytest

from skippyd.core.openai.errors import ApiRefusedError
from skippyd.core.openai.fields import FieldReader, as_text, shown


READER = FieldReader(
    {
        "null": None,
        "text": "é",
        "flag": True,
        "five": 5,
        "half": 0.5,
        "huge": float("inf"),
    },
    "stream_options.",
)


def test_null_is_the_same_as_absent() -> None:
    for name in ("null", "absent"):
        assert READER.text(name) is None
        assert READER.flag(name) is False
        assert READER.integer(name, 0, 9) is None
        assert READER.number(name, 0, 9) is None


def test_values_within_their_range_are_read() -> None:
    assert READER.text("text") == "é"
    assert READER.flag("flag") is True
    assert READER.integer("five", 5, 5) == 5
    assert READER.number("five", 0, 5) == 5.0
    assert READER.number("half", 0.5, 1) == 0.5


@pytest.mark.parametrize("name", ["flag", "half", "text"])
def test_a_whole_number_is_nothing_else(name: str) -> None:
    with pytest.raises(ApiRefusedError, match=r"whole number from 0 to 9"):
        READER.integer(name, 0, 9)


@pytest.mark.parametrize(("low", "high"), [(6, 9), (0, 4)])
def test_a_number_out_of_range_is_refused(low: int, high: int) -> None:
    with pytest.raises(ApiRefusedError, match=f"from {low} to {high}, not 5"):
        READER.integer("five", low, high)
    with pytest.raises(ApiRefusedError, match=f"from {low} to {high}, not 5"):
        READER.number("five", low, high)


@pytest.mark.parametrize("name", ["flag", "text", "huge"])
def test_a_number_is_finite_and_no_other_type(name: str) -> None:
    with pytest.raises(ApiRefusedError, match="must be a number"):
        READER.number(name, 0, float("inf"))


def test_a_flag_is_no_number_and_the_path_is_named() -> None:
    with pytest.raises(ApiRefusedError) as refused:
        READER.flag("five")
    assert refused.value.error.param == "stream_options.five"


def test_text_is_valid_unicode() -> None:
    with pytest.raises(ApiRefusedError, match="lone surrogate at character 1"):
        as_text("a\ud800", "prompt")
    with pytest.raises(ApiRefusedError, match="must be a string, not 5"):
        as_text(5, "prompt")


def test_a_long_value_is_shown_short() -> None:
    assert len(shown("x" * 1000)) < 80
