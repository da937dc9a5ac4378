"""Properties of the codec as a whole: round trip, splits, truncation, mutation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skippyd.core.wire.decode import MessageParser, ReplyParser
from skippyd.core.wire.encode import encode_message, encode_reply
from skippyd.errors import RemoteProtocolError
from support.wire_strategies import WIDTH, replies, split_points, stage_messages


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import Failure, StageReply


pytestmark = pytest.mark.slow  # a hundred examples each

relaxed = settings(deadline=None)  # a busy machine is no failure


def encoded(message: StageMessage) -> bytes:
    return b"".join(encode_message(message))


def parsed(data: bytes) -> list[StageMessage]:
    parser = MessageParser(WIDTH)
    parser.receive_data(data)
    return list(iter(parser.next_value, None))


@relaxed
@given(stage_messages())
def test_a_message_survives_the_round_trip(message: StageMessage) -> None:
    assert parsed(encoded(message)) == [message]


@relaxed
@given(stage_messages())
def test_what_was_decoded_encodes_to_the_same_bytes(message: StageMessage) -> None:
    data = encoded(message)
    assert b"".join(map(encoded, parsed(data))) == data


@relaxed
@given(replies())
def test_a_reply_survives_the_round_trip(reply: StageReply | Failure) -> None:
    parser = ReplyParser()
    parser.receive_data(encode_reply(reply))
    assert parser.next_value() == reply
    assert parser.at_boundary


@relaxed
@given(st.lists(stage_messages(), min_size=1, max_size=3), st.data(), st.booleans())
def test_any_split_of_the_stream_gives_the_same_messages(
    messages: list[StageMessage], data: st.DataObject, drain: bool
) -> None:
    stream = bytearray(b"".join(map(encoded, messages)))
    parser, got = MessageParser(WIDTH), []
    for start, end in data.draw(split_points(len(stream))):
        piece = bytearray(stream[start:end])
        parser.receive_data(piece)
        piece[:] = bytes(len(piece))  # a shell may reuse its buffer at once
        if drain:
            got += list(iter(parser.next_value, None))
    parser.receive_eof()
    got += list(iter(parser.next_value, None))
    assert got == messages


@relaxed
@given(st.lists(replies(), min_size=1, max_size=3), st.data())
def test_any_split_of_the_stream_gives_the_same_replies(
    values: list[StageReply | Failure], data: st.DataObject
) -> None:
    stream = b"".join(map(encode_reply, values))
    parser, got = ReplyParser(), []
    for start, end in data.draw(split_points(len(stream))):
        parser.receive_data(memoryview(stream)[start:end])
        got += list(iter(parser.next_value, None))
    assert got == values


@relaxed
@given(stage_messages(), st.data())
def test_a_truncated_message_is_never_a_message(
    message: StageMessage, data: st.DataObject
) -> None:
    stream = encoded(message)
    size = data.draw(st.integers(1, len(stream) - 1))
    parser = MessageParser(WIDTH)
    parser.receive_data(stream[:size])
    assert parser.next_value() is None
    assert 0 < parser.wanted_bytes <= len(stream) - size
    with pytest.raises(RemoteProtocolError, match="never came"):
        parser.receive_eof()


@relaxed
@given(stage_messages(), st.data())
def test_a_mutated_message_gives_messages_or_a_protocol_error(
    message: StageMessage, data: st.DataObject
) -> None:
    """No other exception, and nothing held beyond what was sent."""
    stream = bytearray(encoded(message))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(
            st.integers(0, 255)
        )
    parser = MessageParser(WIDTH)
    error = error_of(lambda: drained(parser, stream))
    if error is not None:
        with pytest.raises(RemoteProtocolError) as again:
            parser.next_value()
        assert str(again.value) == str(error)


@relaxed
@given(st.binary(max_size=300))
def test_arbitrary_bytes_never_break_the_reply_parser(stream: bytes) -> None:
    parser = ReplyParser()
    parser.receive_data(stream)
    error = error_of(lambda: list(iter(parser.next_value, None)))
    assert error is not None or parser.wanted_bytes > 0


def drained(parser: MessageParser, stream: bytes | bytearray) -> list[StageMessage]:
    parser.receive_data(stream)
    messages = list(iter(parser.next_value, None))
    parser.receive_eof()
    return messages


def error_of(act: Callable[[], object]) -> RemoteProtocolError | None:
    try:
        act()
    except RemoteProtocolError as error:
        return error
    return None
