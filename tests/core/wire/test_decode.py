"""The readers: every refusal by its text, checked before bytes are awaited."""

from __future__ import annotations

import struct

import pytest

from skippyd.core.wire.decode import MessageParser, ReplyParser
from skippyd.core.wire.encode import encode_message
from skippyd.core.wire.kinds import MessageKind
from skippyd.core.wire.messages import StageMessage
from skippyd.errors import LocalProtocolError, RemoteProtocolError
from skippyd.ids import RequestId, SessionId


FIELDS = {
    "kind": 0,
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


def message_error(data: bytes, width: int = 2) -> str:
    parser = MessageParser(width)
    parser.receive_data(data)
    with pytest.raises(RemoteProtocolError) as caught:
        parser.next_value()
    return str(caught.value)


def reply_error(data: bytes) -> str:
    parser = ReplyParser()
    parser.receive_data(data)
    with pytest.raises(RemoteProtocolError) as caught:
        parser.next_value()
    return str(caught.value)


@pytest.mark.parametrize("kind", [0, -1, 10, 11, 12, 23, 2**31 - 1])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    text = message_error(prefix(kind, version=99))
    assert text.startswith(f"unknown stage message kind: {kind};")


@pytest.mark.parametrize("version", [0, 6, 13, 15])
def test_another_state_version_is_refused_before_the_counts(version: int) -> None:
    text = message_error(prefix(2, version=version, token_count=-1))
    assert text.startswith(f"unsupported stage state version: got {version},")


@pytest.mark.parametrize(
    "field", ["token_count", "token_sideband_count", "position_sideband_count"]
)
@pytest.mark.parametrize("kind", [1, 3, 19])
def test_a_negative_count_is_refused(field: str, kind: int) -> None:
    text = message_error(prefix(kind, **{field: -1}))
    assert text.startswith("negative wire count: ")


@pytest.mark.parametrize("sideband", ["token", "position"])
def test_a_sideband_above_its_maximum_is_refused(sideband: str) -> None:
    changes = {f"{sideband}_sideband_count": 1_048_577}
    text = message_error(prefix(1, **changes))
    assert text.startswith(f"{sideband} sideband count exceeds maximum: 1048577")
    assert message_of(prefix(3, **changes)).kind is MessageKind.STOP


def message_of(data: bytes) -> StageMessage:
    parser = MessageParser(2)
    parser.receive_data(data)
    message = parser.next_value()
    assert message is not None
    return message


def test_the_largest_sidebands_are_awaited() -> None:
    parser = MessageParser(2)
    counts = {"token_sideband_count": 2**20, "position_sideband_count": 2**20}
    parser.receive_data(prefix(1, **counts))
    assert parser.next_value() is None
    assert parser.wanted_bytes == 8 * 2**20


def test_a_stop_ends_with_its_prefix_whatever_it_counts() -> None:
    data = prefix(3, token_count=9, token_sideband_count=9, source_stage_index=0)
    parser = MessageParser(2)
    parser.receive_data(data)
    assert parser.next_value() is not None
    assert parser.at_boundary


def test_a_state_import_above_its_maximum_is_refused() -> None:
    text = message_error(prefix(7, token_count=512 * 1024**2 + 1))
    assert text.startswith("state import byte count exceeds maximum: 536870913")


def test_an_activation_above_its_maximum_is_the_peers_fault() -> None:
    data = prefix(1, token_count=2**20, source_stage_index=0)
    assert message_error(data, 2**20).startswith(
        "activation payload byte count exceeds maximum: "
    )


def test_chat_metadata_above_its_maximum_is_refused() -> None:
    data = prefix(14, flags=32) + struct.pack("<I", 8 * 1024**2 + 1)
    assert message_error(data).startswith(
        "chat sampling metadata length exceeds maximum: 8388609"
    )


def test_chat_metadata_must_be_utf8() -> None:
    data = prefix(14, flags=32) + struct.pack("<I", 2) + b"a\xff"
    assert message_error(data).startswith(
        "chat sampling metadata is not UTF-8: byte 1 of 2"
    )


def test_unknown_flags_are_kept_for_the_stage_to_judge() -> None:
    assert message_of(prefix(20, flags=4 | 2**20)).flags == 4 | 2**20


def test_a_negative_width_is_our_own_fault() -> None:
    with pytest.raises(LocalProtocolError, match="width -1 is negative"):
        MessageParser(-1)


def test_a_message_without_sidebands_and_rows_ends_with_its_prefix() -> None:
    message = message_of(prefix(2))
    assert (message.tokens, message.positions, message.activation) == ((), (), b"")


def test_a_large_activation_arrives_in_pieces_without_growing_beyond_itself() -> None:
    rows = 64
    sent = StageMessage(
        kind=MessageKind.PREFILL_EMBD,
        request_id=RequestId(1),
        session_id=SessionId(2),
        token_count=rows,
        tokens=tuple(range(rows)),
        source_stage_index=0,
        activation=bytes(range(256)) * 16 * rows,
    )
    stream = b"".join(encode_message(sent))
    parser = MessageParser(1024)
    for start in range(0, len(stream), 5000):
        assert parser.next_value() is None
        parser.receive_data(stream[start : start + 5000])
    got = parser.next_value()
    assert got == sent
    parser.receive_data(stream[:100])
    assert parser.next_value() is None
    assert not parser.at_boundary
    assert parser.take_unread() == stream[72:100]


def test_the_missing_part_is_named_at_the_end() -> None:
    parser = MessageParser(2)
    parser.receive_data(prefix(2, token_count=1, source_stage_index=0) + b"abc")
    with pytest.raises(
        RemoteProtocolError, match="5 of 8 bytes of sidebands and activation"
    ):
        parser.receive_eof()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (0, "unknown stage reply kind: 0;"),
        (4, "unknown stage reply kind: 4 (reserved);"),
        (5, "unknown stage reply kind: 5 (reserved);"),
        (126, "unknown stage reply kind: 126;"),
    ],
)
def test_an_unknown_reply_kind_is_refused(kind: int, text: str) -> None:
    assert reply_error(struct.pack("<3i", kind, 0, 0)).startswith(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (-1, "negative predicted token count: -1"),
        (262_145, "predicted token count exceeds maximum: 262145"),
    ],
)
def test_a_bad_token_count_is_refused_in_reply_and_draft(count: int, text: str) -> None:
    assert reply_error(struct.pack("<3i", 3, 0, count)).startswith(text)
    draft = struct.pack("<3i2ii", 2, 0, 0, 0, 1, count)
    assert reply_error(draft).startswith(text)


@pytest.mark.parametrize("marker", [-1, 2])
def test_another_draft_marker_is_refused(marker: int) -> None:
    text = reply_error(struct.pack("<3i2i", 2, 0, 0, 0, marker))
    assert text.startswith(f"unknown native MTP draft reply marker: {marker}")


@pytest.mark.parametrize("code", [0, 11, -1])
def test_an_unknown_failure_code_is_refused(code: int) -> None:
    text = reply_error(struct.pack("<3iI", 127, code, 2, 0))
    assert text.startswith(f"unknown stage failure code: {code} of stage 2")


def test_a_failure_text_above_its_maximum_is_refused() -> None:
    text = reply_error(struct.pack("<3iI", 127, 1, 2, 513))
    assert text.startswith("stage failure text exceeds maximum: 513")


def test_a_failure_text_must_be_utf8() -> None:
    text = reply_error(struct.pack("<3iI", 127, 1, 2, 1) + b"\xff")
    assert text.startswith("stage failure text is not UTF-8")


def test_a_reply_stream_may_end_between_replies_only() -> None:
    parser = ReplyParser()
    parser.receive_eof()
    assert parser.at_boundary
    parser = ReplyParser()
    parser.receive_data(struct.pack("<3i", 2, 0, 1))
    with pytest.raises(RemoteProtocolError, match="12 of 12 bytes of the reply tokens"):
        parser.receive_eof()
