"""The writer: what it derives, what it passes uncopied, what it refuses."""

from __future__ import annotations

import array
import mmap
import struct

import pytest

from skippyd.core.wire.encode import (
    encode_auth_preamble,
    encode_message,
    encode_reply,
)
from skippyd.core.wire.kinds import MessageKind, ReplyKind
from skippyd.core.wire.messages import StageMessage
from skippyd.core.wire.replies import (
    Failure,
    MtpDraft,
    StageReply,
    ack,
    predicted_token,
    predicted_tokens,
)
from skippyd.core.wire.sampling import SamplingBlock
from skippyd.errors import FailureCode, LocalProtocolError
from skippyd.ids import RequestId, SessionId


def message(kind: MessageKind, **changes: object) -> StageMessage:
    fresh = StageMessage(kind=kind, request_id=RequestId(1), session_id=SessionId(2))
    for name, value in changes.items():
        setattr(fresh, name, value)
    return fresh


def flags_of(data: bytes | memoryview) -> int:
    (flags,) = struct.unpack_from("<i", data, 32)
    return int(flags)


def test_the_writer_derives_the_flags_of_optional_parts() -> None:
    plain = message(MessageKind.CONFIGURE_GENERATION, flags=8 | 16 | 32)
    assert flags_of(encode_message(plain)[0]) == 16
    plain.flags = 0
    plain.sampling = SamplingBlock()
    assert flags_of(encode_message(plain)[0]) == 8
    plain.chat_metadata = ""
    assert flags_of(encode_message(plain)[0]) == 8 | 32


def test_an_activation_is_passed_uncopied_behind_one_head() -> None:
    rows = array.array("f", [1.0, 2.0, 3.0, 4.0])
    work = message(
        MessageKind.PREFILL_EMBD,
        token_count=2,
        tokens=(1, 2),
        source_stage_index=0,
        activation=memoryview(rows),
    )
    head, payload = encode_message(work)
    assert len(head) == 72 + 8
    assert isinstance(payload, memoryview)
    assert (payload.format, payload.nbytes) == ("B", 16)
    rows[0] = 0.0
    assert payload[:4] == bytes(4)


def test_plain_bytes_are_passed_as_they_are() -> None:
    raw = b"raw bytes"
    imported = message(MessageKind.STATE_IMPORT, token_count=len(raw), raw=raw)
    assert encode_message(imported)[1] is raw


@pytest.mark.parametrize(
    ("kind", "changes", "text"),
    [
        (
            MessageKind.TRIM_SESSION,
            {"token_count": -1},
            "^negative wire count: token_count -1 of TRIM_SESSION",
        ),
        (
            MessageKind.PREFILL_EMBD,
            {"tokens": (0,) * 1_048_577},
            "^too many tokens: 1048577",
        ),
        (
            MessageKind.PREFILL_EMBD,
            {"positions": (0,) * 1_048_577},
            "^too many position sideband values: 1048577",
        ),
        (
            MessageKind.STATE_IMPORT,
            {"token_count": 2, "raw": b"abc"},
            "^state import raw byte count mismatch: 3 bytes where 2",
        ),
        (
            MessageKind.CONFIGURE_GENERATION,
            {"chat_metadata": "x" * (8 * 1024**2 + 1)},
            "^chat sampling metadata is too large: 8388609 bytes",
        ),
        (MessageKind.STOP, {"tokens": (1,)}, "^STOP carries no sidebands"),
        (
            MessageKind.STATE_IMPORT,
            {"positions": (1,)},
            "^STATE_IMPORT carries no sidebands",
        ),
        (MessageKind.STOP, {"raw": b"abc"}, "^STOP carries no raw bytes"),
        (
            MessageKind.DECODE_EMBD,
            {"token_count": 1, "activation": bytes(8)},
            "^activation payload byte count mismatch: DECODE_EMBD announces 0 rows",
        ),
        (
            MessageKind.DECODE_EMBD,
            {"token_count": 1, "source_stage_index": 0},
            "^activation payload byte count mismatch: DECODE_EMBD announces 1 rows",
        ),
        (
            MessageKind.DECODE_EMBD,
            {"token_count": 2, "source_stage_index": 0, "activation": bytes(12)},
            "^activation payload byte count mismatch: DECODE_EMBD announces 2 rows",
        ),
        (
            MessageKind.PROBE_PREFILL,
            {"token_count": 1, "source_stage_index": 0, "activation": bytes(4)},
            "^activation payload byte count mismatch: PROBE_PREFILL announces 0",
        ),
        (MessageKind.STOP, {"pos_start": 2**31}, "^a number of STOP does not fit"),
        (MessageKind.PREFILL_EMBD, {"tokens": (2**31,)}, "PREFILL_EMBD does not fit"),
        (
            MessageKind.DECODE_EMBD,
            {"sampling": SamplingBlock(temperature=1e39)},
            "DECODE_EMBD does not fit its width",
        ),
        (
            MessageKind.CONFIGURE_GENERATION,
            {"chat_metadata": "a\ud800"},
            "^a text of CONFIGURE_GENERATION cannot be UTF-8: .* at character 1",
        ),
        (
            MessageKind.CONFIGURE_GENERATION,
            {"sampling": SamplingBlock(samplers=("\ud800",))},
            "^a text of CONFIGURE_GENERATION cannot be UTF-8: .* at character 0",
        ),
    ],
)
def test_a_message_that_breaks_the_protocol_is_never_sent(
    kind: MessageKind, changes: dict[str, object], text: str
) -> None:
    with pytest.raises(LocalProtocolError, match=text):
        encode_message(message(kind, **changes))


def test_a_payload_above_its_maximum_is_refused() -> None:
    """The pages of the zeroed buffer are never touched."""
    size_bytes = 512 * 1024**2 + 4
    work = message(
        MessageKind.PREFILL_EMBD,
        token_count=1,
        source_stage_index=0,
        activation=zeroed(size_bytes),
    )
    with pytest.raises(
        LocalProtocolError, match=r"^activation payload byte count exceeds maximum"
    ):
        encode_message(work)
    imported = message(
        MessageKind.STATE_IMPORT, token_count=size_bytes, raw=zeroed(size_bytes)
    )
    with pytest.raises(LocalProtocolError, match=r"^state import raw byte count mis"):
        encode_message(imported)


def zeroed(size_bytes: int) -> memoryview:
    return memoryview(mmap.mmap(-1, size_bytes))


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (predicted_tokens((0,) * 262_145), "^too many predicted tokens: 262145"),
        (
            predicted_token(0, mtp_draft=MtpDraft((0,) * 262_145, 0)),
            "^too many predicted tokens: 262145",
        ),
        (predicted_token(2**31), "does not fit its width"),
        (Failure(FailureCode.INTERNAL, 2**31, "x"), "does not fit its width"),
        (StageReply(kind=ReplyKind.FAILURE), "^a Failure reply is a Failure value"),
    ],
)
def test_a_reply_that_breaks_the_protocol_is_never_sent(
    reply: StageReply | Failure, text: str
) -> None:
    with pytest.raises(LocalProtocolError, match=text):
        encode_reply(reply)


def test_an_acknowledgement_has_236_bytes() -> None:
    assert encode_reply(ack()) == struct.pack("<5i", 1, 0, 0, 0, 0) + bytes(216)


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("a" * 600, b"a" * 512),
        ("a" * 511 + "é", b"a" * 511),
        ("a" * 510 + "é", b"a" * 510 + "é".encode()),
        ("\ud800", b"?"),
    ],
    ids=["long", "cut inside a character", "just fits", "lone surrogate"],
)
def test_the_text_of_a_failure_is_cut_at_a_character(text: str, sent: bytes) -> None:
    data = encode_reply(Failure(FailureCode.TIMEOUT, 1, text))
    assert data == struct.pack("<3iI", 127, 8, 1, len(sent)) + sent


@pytest.mark.parametrize("size", [0, 65])
def test_a_token_of_a_bad_length_is_never_sent(size: int) -> None:
    with pytest.raises(
        LocalProtocolError, match=r"^transport auth token length out of range"
    ):
        encode_auth_preamble(bytes(size))
