"""Golden frames hold in both directions, whatever way the bytes arrive."""

from __future__ import annotations

import pytest

from skippyd.core.wire.auth import AuthParser, connection_token
from skippyd.core.wire.decode import MessageParser, ReplyParser
from skippyd.core.wire.encode import (
    encode_auth_preamble,
    encode_message,
    encode_ready,
    encode_reply,
)
from skippyd.core.wire.kinds import MessageKind, ReplyKind
from skippyd.core.wire.ready import ReadyParser
from skippyd.errors import RemoteProtocolError
from support.wire_vectors import Vector, load_vectors, message_of, reply_of


MESSAGES = load_vectors("message")
REPLIES = load_vectors("reply", "failure")
(READY,) = load_vectors("ready")
(AUTH,) = load_vectors("auth")


def each(vectors: list[Vector]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", vectors, ids=lambda vector: vector.name)


def parser_for(vector: Vector) -> MessageParser:
    return MessageParser(vector.fields["activation_width"])


@each(MESSAGES)
def test_a_message_encodes_to_its_golden_bytes(vector: Vector) -> None:
    assert b"".join(encode_message(message_of(vector))) == vector.data


@each(MESSAGES)
def test_a_golden_message_decodes_to_its_fields(vector: Vector) -> None:
    parser = parser_for(vector)
    parser.receive_data(vector.data)
    assert parser.next_value() == message_of(vector)
    assert parser.next_value() is None
    assert parser.at_boundary
    parser.receive_eof()


@each(MESSAGES)
def test_a_golden_message_may_come_byte_by_byte(vector: Vector) -> None:
    parser = parser_for(vector)
    for index in range(len(vector.data)):
        assert parser.next_value() is None
        assert parser.at_boundary == (index == 0)
        parser.receive_data(vector.data[index : index + 1])
    assert parser.next_value() == message_of(vector)


@each(MESSAGES)
def test_a_shell_that_reads_what_is_wanted_reads_the_message_exactly(
    vector: Vector,
) -> None:
    parser, offset = parser_for(vector), 0
    assert parser.wanted_bytes == 72
    while (message := parser.next_value()) is None:
        wanted = parser.wanted_bytes
        assert 0 < wanted <= len(vector.data) - offset
        parser.receive_data(bytearray(vector.data[offset : offset + wanted]))
        offset += wanted
    assert message == message_of(vector)
    assert offset == len(vector.data)
    assert parser.wanted_bytes == 72


@each(MESSAGES)
def test_a_golden_message_cut_anywhere_is_refused_at_the_end(vector: Vector) -> None:
    for size in range(1, len(vector.data)):
        parser = parser_for(vector)
        parser.receive_data(vector.data[:size])
        with pytest.raises(RemoteProtocolError, match=r"\d+ of \d+ bytes of"):
            parser.receive_eof()


@each(REPLIES)
def test_a_reply_encodes_to_its_golden_bytes(vector: Vector) -> None:
    assert encode_reply(reply_of(vector)) == vector.data


@each(REPLIES)
def test_a_golden_reply_may_come_byte_by_byte(vector: Vector) -> None:
    parser = ReplyParser()
    assert parser.wanted_bytes == 12
    for index in range(len(vector.data)):
        assert parser.next_value() is None
        assert parser.at_boundary == (index == 0)
        parser.receive_data(vector.data[index : index + 1])
    assert parser.next_value() == reply_of(vector)
    assert parser.take_unread() == b""


@each(REPLIES)
def test_a_golden_reply_cut_anywhere_is_refused_at_the_end(vector: Vector) -> None:
    for size in range(1, len(vector.data)):
        parser = ReplyParser()
        parser.receive_data(vector.data[:size])
        with pytest.raises(RemoteProtocolError, match=r"\d+ of \d+ bytes of"):
            parser.receive_eof()


def test_the_ready_word_is_golden() -> None:
    assert encode_ready() == READY.data
    parser = ReadyParser()
    parser.receive_data(READY.data)
    assert parser.next_ready() is True


def test_the_authentication_preamble_is_golden() -> None:
    purpose = AUTH.fields["purpose"]
    token = connection_token(bytes(range(32)), purpose)
    assert token.hex() == AUTH.fields["token"]
    assert encode_auth_preamble(token) == AUTH.data
    parser = AuthParser({purpose: token})
    parser.receive_data(AUTH.data)
    assert parser.next_purpose() == purpose


def test_the_vectors_cover_every_shape_of_frame() -> None:
    kinds = {message_of(vector).kind for vector in MESSAGES}
    assert {MessageKind.STOP, MessageKind.STATE_IMPORT, MessageKind.DECODE_EMBD} < kinds
    assert {vector.fields["kind"] for vector in load_vectors("reply")} == {
        kind.name for kind in ReplyKind if kind is not ReplyKind.FAILURE
    }
