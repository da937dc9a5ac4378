from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.openai.errors import ApiRefusedError
from skippyd.core.openai.json_body import parse_json_object


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"[]", "must be an object"),
        (b"null", "must be an object"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": 1, "b": 2, "a": 1}', "'a' is given twice"),
        (b'{"a": "\xff"}', "utf-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
    ],
)
def test_a_bad_body_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(ApiRefusedError) as refused:
        parse_json_object(body)
    error = refused.value.error
    assert (error.status, error.code) == (400, "invalid_value")
    assert error.message.startswith("invalid JSON request body: ")
    assert reason in error.message


def test_a_good_body_keeps_its_values() -> None:
    body = '{"a": [1, 2.5, null, true, "é"], "b": {}}'.encode()
    assert parse_json_object(body) == {"a": [1, 2.5, None, True, "é"], "b": {}}


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_refusal(body: bytes) -> None:
    assert _outcome(body) in {"object", 400}


def _outcome(body: bytes) -> str | int:
    try:
        parse_json_object(body)
    except ApiRefusedError as refused:
        return refused.error.status
    return "object"
