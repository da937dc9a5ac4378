"""A frame that arrives whole is met exactly as the same bytes one by one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skippyd.core.wire.decode import MessageParser, ReplyParser
from skippyd.core.wire.encode import encode_message, encode_reply
from skippyd.core.wire.kinds import MessageKind, ReplyKind
from skippyd.core.wire.messages import StageMessage
from skippyd.core.wire.replies import (
    Failure,
    MtpDraft,
    StageReply,
    StageStats,
    ack,
    predicted_token,
)
from skippyd.errors import FailureCode, LocalProtocolError, RemoteProtocolError


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FIELDS = {
    "token_count": 2,
    "token_sideband_count": 3,
    "position_sideband_count": 4,
    "version": 5,
    "flags": 8,
    "source_stage_index": 13,
}


def prefix(kind: int, **changes: int) -> bytes:
    words = [kind, 0, 0, 0, 0, 14, 0, 2, 0, 0, 0, -1, -1, -1]
    for name, value in changes.items():
        words[FIELDS[name]] = value
    return struct.pack("<14iQQ", *words, 1, 2)


DECODE = prefix(2, token_count=1, token_sideband_count=1, source_stage_index=0) + bytes(
    range(1, 13)
)
"""One token and one row of width 2; what the others below are as long as."""
STOP = prefix(3)
PREDICTION = encode_reply(predicted_token(1234))


def met(
    parser: MessageParser | ReplyParser, pieces: Iterable[bytes | bytearray]
) -> list[object]:
    """All that a stream of pieces is, and how it ends."""
    found: list[object] = []
    try:
        for piece in pieces:
            parser.receive_data(piece)
            while (value := parser.next_value()) is not None:
                found.append(value)
        parser.receive_eof()
    except RemoteProtocolError as error:
        found.append(str(error))
    return found


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def test_a_decode_in_one_piece_is_the_message_that_it_is_byte_by_byte() -> None:
    (whole,) = met(MessageParser(2), [DECODE])
    assert [whole] == met(MessageParser(2), byte_by_byte(DECODE))
    assert isinstance(whole, StageMessage)
    assert (whole.kind, whole.token_count) == (MessageKind.DECODE_EMBD, 1)
    assert whole.tokens == (0x04030201,)
    assert bytes(whole.activation) == bytes(range(5, 13))
    assert b"".join(encode_message(whole)) == DECODE


def test_an_activation_in_one_piece_is_not_copied() -> None:
    (message,) = met(MessageParser(2), [DECODE])
    assert isinstance(message, StageMessage)
    assert isinstance(message.activation, memoryview)
    assert message.activation.obj is DECODE


OF_ITS_SIZE: dict[str, dict[str, int]] = {
    "flag sampling": {"flags": 8},
    "flag chat": {"flags": 32},
    "flag of two rows": {"flags": 64},
    "flag without meaning here": {"flags": 16},
    "unknown flag": {"flags": 2**20},
    "older state": {"version": 13},
    "newer state": {"version": 15},
    "driver side": {"source_stage_index": -1},
    "below the driver side": {"source_stage_index": -(2**31)},
    "no row": {"token_count": 0},
    "two rows": {"token_count": 2},
    "negative rows": {"token_count": -1},
    "rows without end": {"token_count": 2**31 - 1},
    "no token": {"token_sideband_count": 0},
    "three tokens, no row": {"token_sideband_count": 3, "token_count": 0},
    "negative tokens": {"token_sideband_count": -1},
    "tokens without end": {"token_sideband_count": 2**31 - 1},
    "a position": {"position_sideband_count": 1},
    "a position for the token": {
        "position_sideband_count": 1,
        "token_sideband_count": 0,
    },
    "negative positions": {"position_sideband_count": -1},
    "positions without end": {"position_sideband_count": 2**31 - 1},
}


@pytest.mark.parametrize("what", OF_ITS_SIZE)
def test_what_only_has_the_size_of_a_decode_is_met_as_it_is(what: str) -> None:
    counts = {"token_count": 1, "token_sideband_count": 1, "source_stage_index": 0}
    data = prefix(2, **counts | OF_ITS_SIZE[what]) + DECODE[72:]
    assert met(MessageParser(2), [data]) == met(MessageParser(2), byte_by_byte(data))


@pytest.mark.parametrize("kind", range(-1, 25))
def test_another_kind_of_the_size_of_a_decode_is_met_as_it_is(kind: int) -> None:
    data = struct.pack("<i", kind) + DECODE[4:]
    assert met(MessageParser(2), [data]) == met(MessageParser(2), byte_by_byte(data))


WORDS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-1, 0, 1, 2, 3, 13, 14])


@given(at=st.integers(0, len(DECODE) // 4 - 1), word=WORDS)
@example(at=3, word=2)
def test_a_decode_with_any_word_changed_is_the_same_in_one_piece(
    at: int, word: int
) -> None:
    data = DECODE[: 4 * at] + struct.pack("<i", word) + DECODE[4 * at + 4 :]
    assert met(MessageParser(2), [data]) == met(MessageParser(2), byte_by_byte(data))


def test_two_messages_that_are_together_as_long_as_a_decode_are_two() -> None:
    width = 17  # a decode is 72 + 4 * (1 + 17) bytes then, twice a Stop
    found = met(MessageParser(width), [STOP + STOP])
    assert found == met(MessageParser(width), byte_by_byte(STOP + STOP))
    assert len(found) == 2


@pytest.mark.parametrize("cut", [1, 42, 72, 83])
def test_a_piece_as_long_as_a_decode_behind_a_part_of_one_is_no_decode(
    cut: int,
) -> None:
    stream = DECODE + DECODE[:76] + b"another." + DECODE
    pieces = [stream[:cut], stream[cut : cut + 84], stream[cut + 84 :]]
    assert met(MessageParser(2), pieces) == met(MessageParser(2), byte_by_byte(stream))


def test_decodes_that_nobody_has_taken_keep_their_order() -> None:
    parser = MessageParser(2)
    second = DECODE[:-1] + b"?"
    for piece in (DECODE, second, STOP, DECODE):
        parser.receive_data(piece)
    taken = [parser.next_value() for _ in range(5)]
    stream = DECODE + second + STOP + DECODE
    assert taken == [*met(MessageParser(2), byte_by_byte(stream)), None]
    assert parser.at_boundary
    assert parser.wanted_bytes == 72


def test_a_decode_behind_an_untaken_message_comes_after_it() -> None:
    parser = MessageParser(2)
    parser.receive_data(STOP)
    parser.receive_data(DECODE)
    kinds = [value.kind for _ in range(2) if (value := parser.next_value())]
    assert kinds == [MessageKind.STOP, MessageKind.DECODE_EMBD]


def test_a_decode_for_a_stage_without_width_has_no_activation() -> None:
    data = DECODE[:76]
    (message,) = met(MessageParser(0), [data])
    assert [message] == met(MessageParser(0), byte_by_byte(data))
    assert isinstance(message, StageMessage)
    assert len(message.activation) == 0


@pytest.mark.parametrize("make", [bytearray, lambda data: memoryview(bytearray(data))])
def test_a_whole_frame_in_a_buffer_that_is_used_again_is_copied(
    make: Callable[[bytes], bytearray],
) -> None:
    buffer, parser = make(DECODE), MessageParser(2)
    parser.receive_data(buffer)
    buffer[:] = bytes(len(DECODE))
    assert [parser.next_value()] == met(MessageParser(2), [DECODE])
    buffer, replies = make(PREDICTION), ReplyParser()
    replies.receive_data(buffer)
    buffer[:] = bytes(len(PREDICTION))
    assert replies.next_value() == predicted_token(1234)


@pytest.mark.parametrize(
    ("parser", "wrong", "frame"),
    [
        (MessageParser(2), prefix(99), DECODE),
        (ReplyParser(), struct.pack("<3i", 99, 0, 0), PREDICTION),
    ],
)
def test_after_an_error_no_whole_frame_is_taken_any_more(
    parser: MessageParser | ReplyParser, wrong: bytes, frame: bytes
) -> None:
    parser.receive_data(wrong)
    for ask in (parser.next_value, lambda: parser.receive_data(frame)) * 2:
        with pytest.raises(RemoteProtocolError, match="kind: 99"):
            ask()


@pytest.mark.parametrize(
    ("parser", "frame"), [(MessageParser(2), DECODE), (ReplyParser(), PREDICTION)]
)
def test_after_the_end_a_whole_frame_is_our_own_fault(
    parser: MessageParser | ReplyParser, frame: bytes
) -> None:
    parser.receive_data(frame)
    parser.receive_eof()
    text = f"{len(frame)} bytes were given to a parser after the end"
    for _ in range(2):
        with pytest.raises(LocalProtocolError, match=text):
            parser.receive_data(frame)
    assert parser.next_value() is not None
    assert parser.next_value() is None


# ---- replies in one piece -----------------------------------------------------------


def test_a_prediction_in_one_piece_is_the_reply_that_it_is_byte_by_byte() -> None:
    assert met(ReplyParser(), [PREDICTION]) == [predicted_token(1234)]
    assert met(ReplyParser(), byte_by_byte(PREDICTION)) == [predicted_token(1234)]


REPLIES_OF_ITS_SIZE: dict[str, list[StageReply | Failure]] = {
    "ack": [StageReply(kind=ReplyKind.ACK, predicted=5, tokens=(5,))],
    "several": [StageReply(kind=ReplyKind.PREDICTED_TOKENS, predicted=5, tokens=(5,))],
    "two names": [
        StageReply(kind=ReplyKind.PREDICTED_TOKEN, predicted=5, tokens=(-6,))
    ],
    "window": [
        StageReply(
            kind=ReplyKind.PREDICTED_TOKEN, predicted=5, tokens=(5,), window_id=9
        )
    ],
    "first statistic": [predicted_token(5, StageStats(kv_lookup_hits=1))],
    "last statistic": [
        predicted_token(5, StageStats(prefill_compute_observation_count=2**62))
    ],
    "failure": [Failure(FailureCode.INTERNAL, 2, "x" * 224)],
    "two failures": [
        Failure(FailureCode.KV_FULL, 1, "y" * 104),
        Failure(FailureCode.TIMEOUT, 0, "z" * 104),
    ],
}


@pytest.mark.parametrize("what", REPLIES_OF_ITS_SIZE)
def test_replies_of_the_size_of_a_prediction_are_met_as_they_are(what: str) -> None:
    sent = REPLIES_OF_ITS_SIZE[what]
    data = b"".join(map(encode_reply, sent))
    assert len(data) == len(PREDICTION)
    assert met(ReplyParser(), [data]) == sent
    assert met(ReplyParser(), byte_by_byte(data)) == sent


@given(at=st.integers(0, len(PREDICTION) // 4 - 1), word=WORDS)
@example(at=0, word=1)  # an ACK
@example(at=0, word=4)  # reserved
@example(at=0, word=127)  # a failure
@example(at=2, word=0)
@example(at=2, word=2)
@example(at=2, word=-1)
@example(at=2, word=2**31 - 1)
@example(at=5, word=1)  # a draft
@example(at=5, word=2)  # no marker
@example(at=5, word=-1)
@example(at=59, word=1)
def test_a_prediction_with_any_word_changed_is_the_same_in_one_piece(
    at: int, word: int
) -> None:
    data = PREDICTION[: 4 * at] + struct.pack("<i", word) + PREDICTION[4 * at + 4 :]
    assert met(ReplyParser(), [data]) == met(ReplyParser(), byte_by_byte(data))


@pytest.mark.parametrize("cut", [1, 120, 239])
def test_a_piece_as_long_as_a_prediction_behind_a_part_of_one_is_none(
    cut: int,
) -> None:
    drafted = encode_reply(predicted_token(8, mtp_draft=MtpDraft((1, 2), 3)))
    stream = PREDICTION + drafted + PREDICTION + encode_reply(ack())
    pieces = [stream[:cut], stream[cut : cut + 240], stream[cut + 240 :]]
    assert len(PREDICTION) == 240
    assert met(ReplyParser(), pieces) == met(ReplyParser(), byte_by_byte(stream))


def test_predictions_that_nobody_has_taken_keep_their_order() -> None:
    sent = [predicted_token(1), predicted_token(2), ack(), predicted_token(3)]
    parser = ReplyParser()
    for reply in sent:
        parser.receive_data(encode_reply(reply))
    assert [parser.next_value() for _ in range(5)] == [*sent, None]
    assert parser.at_boundary
