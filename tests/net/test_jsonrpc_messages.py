"""Messages there and back, and every way to be no JSON-RPC 2.0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.net.jsonrpc_messages import (
    Call,
    Failure,
    Result,
    RpcCode,
    RpcError,
    encode_message,
    parse_message,
)


NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    min_size=1,
    max_size=20,
)
IDS = st.integers(-(2**63), 2**63) | NAMES
VALUES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NAMES
DOCUMENTS = st.dictionaries(NAMES, VALUES | st.lists(VALUES, max_size=3), max_size=4)


@pytest.mark.slow
@given(NAMES, st.none() | DOCUMENTS, st.none() | IDS)
def test_a_call_comes_back_as_it_was(
    method: str, params: object, call_id: int | str | None
) -> None:
    call = Call(method=method, params=params, id=call_id)
    assert parse_message(encode_message(call)) == call


@given(IDS, VALUES | DOCUMENTS)
def test_a_result_comes_back_as_it_was(request_id: int | str, value: object) -> None:
    result = Result(request_id, value)
    assert parse_message(encode_message(result)) == result


@pytest.mark.slow
@given(st.none() | IDS, st.integers(-(2**31), 2**31), NAMES, DOCUMENTS)
def test_a_failure_comes_back_as_it_was(
    request_id: int | str | None, code: int, words: str, data: dict[str, object]
) -> None:
    text = encode_message(Failure(request_id, RpcError(code, words, data)))
    back = parse_message(text)
    assert isinstance(back, Failure)
    assert back.id == request_id
    assert (back.error.code, back.error.message, back.error.data) == (code, words, data)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("{", RpcCode.PARSE, "line 1 column 2"),
        ('{"jsonrpc":"2.0","jsonrpc":"2.0"}', RpcCode.PARSE, "given twice"),
        ("[" * 65 + "]" * 65, RpcCode.PARSE, "nested deeper"),
        ('{"jsonrpc":"2.0","id":NaN}', RpcCode.PARSE, "NaN"),
        ("[]", RpcCode.INVALID_REQUEST, "batches are not served"),
        ("7", RpcCode.INVALID_REQUEST, "jsonrpc"),
        ("{}", RpcCode.INVALID_REQUEST, "jsonrpc"),
        ('{"jsonrpc":2.0}', RpcCode.INVALID_REQUEST, "jsonrpc"),
        ('{"jsonrpc":"2.0","method":7}', RpcCode.INVALID_REQUEST, "method is a text"),
        ('{"jsonrpc":"2.0","method":""}', RpcCode.INVALID_REQUEST, "method is a text"),
        (
            '{"jsonrpc":"2.0","method":"m","params":[1]}',
            RpcCode.INVALID_REQUEST,
            "params is an object",
        ),
        (
            '{"jsonrpc":"2.0","method":"m","more":1}',
            RpcCode.INVALID_REQUEST,
            "unknown member 'more'",
        ),
        ('{"jsonrpc":"2.0","method":"m","id":1.5}', RpcCode.INVALID_REQUEST, "id is"),
        ('{"jsonrpc":"2.0","method":"m","id":true}', RpcCode.INVALID_REQUEST, "id is"),
        ('{"jsonrpc":"2.0","method":"m","id":null}', RpcCode.INVALID_REQUEST, "id is"),
        (
            '{"jsonrpc":"2.0","id":"' + "x" * 65 + '","result":1}',
            RpcCode.INVALID_REQUEST,
            "id is",
        ),
        ('{"jsonrpc":"2.0","id":1}', RpcCode.INVALID_REQUEST, "either a result or"),
        (
            '{"jsonrpc":"2.0","id":1,"result":1,"error":{}}',
            RpcCode.INVALID_REQUEST,
            "either a result or",
        ),
        (
            '{"jsonrpc":"2.0","id":1,"result":1,"more":1}',
            RpcCode.INVALID_REQUEST,
            "unknown member",
        ),
        (
            '{"jsonrpc":"2.0","id":1,"error":{"code":"x"}}',
            RpcCode.INVALID_REQUEST,
            "an error has a code",
        ),
    ],
)
def test_what_is_no_message_is_refused_in_words(
    text: str, code: RpcCode, words: str
) -> None:
    with pytest.raises(RpcError) as caught:
        parse_message(text)
    assert caught.value.code == code
    assert words in str(caught.value)


@pytest.mark.slow
@given(st.text(max_size=60))
def test_nothing_but_a_refusal_comes_of_garbage(text: str) -> None:
    with pytest.raises(RpcError):
        parse_message(text)
