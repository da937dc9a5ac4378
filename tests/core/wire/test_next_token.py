"""The message after a decode is foreseen by every field, and its head to the byte."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.core.wire import requests
from skippyd.core.wire.encode import encode_message, encode_reply
from skippyd.core.wire.kinds import MessageKind
from skippyd.core.wire.messages import StageMessage, forwarded
from skippyd.core.wire.next_token import (
    ANY_PREDICTION,
    HEAD_TOKEN_AT,
    REPLY_TOKEN_AT,
    NextHead,
    follows,
    has_next,
)
from skippyd.core.wire.replies import predicted_token
from skippyd.core.wire.sampling import SamplingBlock
from skippyd.errors import LocalProtocolError
from skippyd.ids import RequestId, SessionId


if TYPE_CHECKING:
    from collections.abc import Callable

ROW = bytes(range(16))
I32_EDGES = (0, 1, -1, 2**31 - 1, -(2**31))


def decode_message(step: int = 3, token: int = 77) -> StageMessage:
    """What stage 0's driver asks for; the prompt has 20 tokens."""
    return requests.decode(
        request_id=RequestId(2**64 - 1),
        session_id=SessionId(2**63 + 5),
        pos_start=20 + step,
        token=token,
        prompt_token_count=20,
        decode_step=step,
    )


def middle_message(step: int = 3, token: int = 77) -> StageMessage:
    """The same as a later stage receives it from stage 1."""
    return forwarded(
        decode_message(step, token), source_stage_index=1, activation=b"\x07" * 16
    )


MESSAGES = {"of the driver": decode_message, "of a stage": middle_message}


def changed(message: StageMessage, **changes: object) -> StageMessage:
    for name, value in changes.items():
        setattr(message, name, value)
    return message


# ---- has_next ----------------------------------------------------------------------


@pytest.mark.parametrize("make", MESSAGES.values(), ids=MESSAGES)
def test_a_plain_decode_of_one_token_has_a_next(
    make: Callable[..., StageMessage],
) -> None:
    assert has_next(make())


UNFORESEEN: dict[str, dict[str, object]] = {
    "two rows": {"token_count": 2},
    "no row": {"token_count": 0},
    "no token": {"tokens": ()},
    "two tokens": {"tokens": (77, 77)},
    "another token in the sideband": {"tokens": (78,)},
    "another token in the state": {"current_token": 78},
    "no token in the state": {"current_token": -1},
    "a sampling block": {"sampling": SamplingBlock()},
    "chat metadata": {"chat_metadata": ""},
    "a position sideband": {"positions": (23,)},
}


@pytest.mark.parametrize("what", UNFORESEEN)
def test_a_decode_with_anything_unforeseen_has_no_next(what: str) -> None:
    assert not has_next(changed(decode_message(), **UNFORESEEN[what]))


@pytest.mark.parametrize(
    "kind", [kind for kind in MessageKind if kind is not MessageKind.DECODE_EMBD]
)
def test_no_other_kind_has_a_next(kind: MessageKind) -> None:
    assert not has_next(changed(decode_message(), kind=kind))


# ---- follows -----------------------------------------------------------------------


@pytest.mark.parametrize("make", MESSAGES.values(), ids=MESSAGES)
def test_the_next_token_follows_whatever_it_is(
    make: Callable[..., StageMessage],
) -> None:
    for token in (0, 77, 78, 2**31 - 1):
        assert follows(make(4, token), make(3, 77))


def test_the_activation_does_not_matter() -> None:
    later = changed(middle_message(4), activation=b"another row.....")
    assert follows(later, changed(middle_message(3), activation=b""))


DIFFERENT: dict[str, tuple[object, ...]] = {
    "kind": (MessageKind.DECODE_READOUT, MessageKind.DECODE_REPLAY_EMBD),
    "pos_start": (23, 25, 22, -1),
    "token_count": (0, 2),
    "seq_id": (1,),
    "phase": (1, 3),
    "flags": (1, 16, 64),
    "checkpoint_generation": (1,),
    "prompt_token_count": (19, 21),
    "decode_step": (3, 5, -1),
    "current_token": (78, -1),
    "source_stage_index": (0, 2, -1),
    "request_id": (RequestId(1),),
    "session_id": (SessionId(1),),
    "sampling": (SamplingBlock(), SamplingBlock(flags=1)),
    "chat_metadata": ("", "{}"),
    "tokens": ((), (78,), (77, 77)),
    "positions": ((24,),),
}
INDIFFERENT = {"activation", "raw"}


@pytest.mark.parametrize("field", DIFFERENT)
def test_a_message_that_differs_in_one_field_does_not_follow(field: str) -> None:
    assert follows(middle_message(4), middle_message(3))
    for value in DIFFERENT[field]:
        other = changed(middle_message(4), **{field: value})
        assert not follows(other, middle_message(3)), value


def test_no_field_of_a_message_is_left_out() -> None:
    """A new field has to be decided on here, and compared or not."""
    fields = {field.name for field in attrs.fields(StageMessage)}
    assert set(DIFFERENT) | INDIFFERENT == fields


@pytest.mark.parametrize(
    "field",
    [
        "seq_id",
        "phase",
        "flags",
        "checkpoint_generation",
        "prompt_token_count",
        "source_stage_index",
        "request_id",
        "session_id",
    ],
)
def test_what_both_share_may_be_anything(field: str) -> None:
    previous = changed(middle_message(3), **{field: 5})
    assert follows(changed(middle_message(4), **{field: 5}), previous)
    assert not follows(middle_message(4), previous)


# ---- heads -------------------------------------------------------------------------


def with_token(head: bytes | bytearray, places: tuple[int, int], token: int) -> bytes:
    written = bytearray(head)
    for at in places:
        struct.pack_into("<i", written, at, token)
    return bytes(written)


@pytest.mark.parametrize("make", MESSAGES.values(), ids=MESSAGES)
def test_the_head_is_that_of_the_next_message_step_after_step(
    make: Callable[..., StageMessage],
) -> None:
    """Stage 2 sends on what it got; the activation follows the head as it is."""
    message = make()
    ahead = NextHead(message, source_stage_index=2, activation=ROW)
    place = ahead.bytes
    for step, token in enumerate((5, 0, 2**31 - 1, 5, 319), start=4):
        message = make(step, token)
        onward = forwarded(message, source_stage_index=2, activation=ROW)
        head, activation = encode_message(onward)
        assert with_token(ahead.bytes, HEAD_TOKEN_AT, token) == head
        assert activation == ROW
        ahead.stand_behind(message)
    assert ahead.bytes is place, "it is changed in place: native code holds its address"


def test_an_incoming_head_is_what_the_stage_before_sends() -> None:
    got = middle_message(3)
    expected = NextHead(
        got, source_stage_index=got.source_stage_index, activation=bytearray(16)
    )
    head, _activation = encode_message(middle_message(4, token=12))
    assert with_token(expected.bytes, HEAD_TOKEN_AT, 12) == head


@pytest.mark.parametrize("token", I32_EDGES)
def test_a_head_says_its_token_at_two_places_and_nowhere_else(token: int) -> None:
    one = b"".join(encode_message(decode_message(token=1)))
    other = b"".join(encode_message(decode_message(token=token)))
    assert with_token(one, HEAD_TOKEN_AT, token) == other
    assert HEAD_TOKEN_AT == (48, 72)


@pytest.mark.parametrize("token", I32_EDGES)
def test_a_prediction_is_known_but_for_its_token(token: int) -> None:
    reply = encode_reply(predicted_token(token))
    assert with_token(ANY_PREDICTION, REPLY_TOKEN_AT, token) == reply
    assert REPLY_TOKEN_AT == (4, 12)


def test_a_head_without_activation_is_our_own_fault() -> None:
    with pytest.raises(LocalProtocolError, match="empty activation payload"):
        NextHead(decode_message(), source_stage_index=0, activation=b"")


def test_behind_the_last_step_that_the_wire_can_say_the_head_stays_there() -> None:
    """It is any peer's number, and no reason to end a lane."""
    last = changed(middle_message(), decode_step=2**31 - 1)
    ahead = NextHead(last, source_stage_index=2, activation=ROW)
    ahead.stand_behind(last)
    assert struct.unpack_from("<i", ahead.bytes, 44) == (2**31 - 1,)
