"""Bytes to values: the parsers of messages and of replies.

Whatever a length or count announces is compared with `limits.py` before its bytes are
awaited, and everything that the prefix alone can tell is checked before anything else.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from skippyd.core.wire.activation import activation_bytes
from skippyd.core.wire.kinds import (
    RESERVED_REPLY_KINDS,
    MessageKind,
    ReplyKind,
    StateFlag,
)
from skippyd.core.wire.layout import (
    I32,
    I64,
    MESSAGE_PREFIX,
    REPLY_HEAD,
    REPLY_TAIL,
    STATS,
    U32,
    unpack_values,
)
from skippyd.core.wire.limits import (
    CHAT_METADATA_MAX_BYTES,
    FAILURE_TEXT_MAX_BYTES,
    PREDICTED_TOKENS_MAX,
    SIDEBAND_MAX,
    STATE_IMPORT_MAX_BYTES,
    STATE_VERSION,
    WIRE_VALUE_BYTES,
)
from skippyd.core.wire.messages import StageMessage
from skippyd.core.wire.reader import ByteReader, Parser, Parsing
from skippyd.core.wire.replies import (
    NO_STATS,
    Failure,
    MtpDraft,
    StageReply,
    StageStats,
)
from skippyd.core.wire.sampling import parse_sampling
from skippyd.errors import FailureCode, LocalProtocolError, RemoteProtocolError


_MESSAGE_KINDS: Final = {kind.value: kind for kind in MessageKind}
_REPLY_KINDS: Final = {kind.value: kind for kind in ReplyKind}
_FAILURE_CODES: Final = {code.value: code for code in FailureCode}
_SAMPLING: Final = StateFlag.SAMPLING.value
_CHAT: Final = StateFlag.CHAT_SAMPLING_METADATA.value
_NO_STATS_BYTES: Final = bytes(STATS.size)
_PREFIX_NAME: Final = "the message prefix"
_REPLY_NAME: Final = "the reply head"
_DECODE: Final = MessageKind.DECODE_EMBD.value
_PLAIN_DECODE: Final = (1, 1, 0, STATE_VERSION, 0)
"""Of its prefix: rows, tokens, positions, state version, flags."""
_PREDICTED: Final = ReplyKind.PREDICTED_TOKEN.value
_PLAIN_PREDICTION_END: Final = REPLY_TAIL.pack(0, 0) + _NO_STATS_BYTES
_PREDICTION_BYTES: Final = (
    REPLY_HEAD.size + WIRE_VALUE_BYTES + len(_PLAIN_PREDICTION_END)
)


class MessageParser(Parsing[StageMessage]):
    """Messages of one connection.

    A shell reads up to `wanted_bytes` whenever `next_value` gave None; reading more is
    fine. After an error every call raises it again.

    Args:
        activation_width: Values of one activation row, 0 where none is expected.
    """

    def __init__(self, activation_width: int) -> None:
        if activation_width < 0:
            raise LocalProtocolError(f"activation width {activation_width} is negative")
        super().__init__(
            _PREFIX_NAME,
            MESSAGE_PREFIX.size,
            partial(_parse_message, width=activation_width),
            whole_bytes=MESSAGE_PREFIX.size + WIRE_VALUE_BYTES * (1 + activation_width),
            parse_whole=_whole_decode,
        )


class ReplyParser(Parsing[StageReply | Failure]):
    """Replies of one connection; used like `MessageParser`."""

    def __init__(self) -> None:
        super().__init__(
            _REPLY_NAME,
            REPLY_HEAD.size,
            _parse_reply,
            whole_bytes=_PREDICTION_BYTES,
            parse_whole=_whole_prediction,
        )


def _whole_decode(data: bytes) -> StageMessage | None:
    """The plain decode of one token that these bytes are, if they are one.

    Such a message usually arrives whole. On the path of every token it is then read in
    one piece, by the same rules; anything else takes the general way.
    """
    words: tuple[int, ...] = MESSAGE_PREFIX.unpack_from(data)
    if (*words[2:6], words[8]) != _PLAIN_DECODE or words[0] != _DECODE or words[13] < 0:
        return None
    message, _tokens, _positions = _message_of_prefix(words)
    message.tokens = I32.unpack_from(data, MESSAGE_PREFIX.size)
    message.activation = memoryview(data)[MESSAGE_PREFIX.size + WIRE_VALUE_BYTES :]
    return message


def _whole_prediction(data: bytes) -> StageReply | None:
    """The prediction without statistics that these bytes are, if they are one."""
    kind, predicted, count = REPLY_HEAD.unpack_from(data)
    if count != 1 or kind != _PREDICTED or not data.endswith(_PLAIN_PREDICTION_END):
        return None
    return StageReply(
        kind=ReplyKind.PREDICTED_TOKEN,
        predicted=predicted,
        tokens=I32.unpack_from(data, REPLY_HEAD.size),
    )


def _parse_message(reader: ByteReader, width: int) -> Parser[StageMessage]:
    prefix = yield from reader.read_exact(MESSAGE_PREFIX.size, _PREFIX_NAME)
    words: tuple[int, ...] = MESSAGE_PREFIX.unpack(prefix)
    message, token_count, position_count = _message_of_prefix(words)
    payload_bytes = _payload_bytes(message, width)
    if message.flags & _SAMPLING:
        message.sampling = yield from parse_sampling(reader)
    if message.flags & _CHAT:
        message.chat_metadata = yield from _parse_chat(reader)
    if message.kind is MessageKind.STOP:
        return message
    if message.kind is MessageKind.STATE_IMPORT:
        message.raw = yield from reader.read_exact(payload_bytes, "the state import")
        return message
    # One element: a shell that reads exactly what is wanted needs two reads a message.
    positions_at = token_count * WIRE_VALUE_BYTES
    activation_at = positions_at + position_count * WIRE_VALUE_BYTES
    if size_bytes := activation_at + payload_bytes:
        body = yield from reader.read_exact(size_bytes, "sidebands and activation")
        message.tokens = unpack_values(body[:positions_at])
        message.positions = unpack_values(body[positions_at:activation_at])
        if payload_bytes:
            message.activation = body[activation_at:]
    return message


def _message_of_prefix(words: tuple[int, ...]) -> tuple[StageMessage, int, int]:
    kind = _MESSAGE_KINDS.get(words[0])
    if kind is None:
        raise RemoteProtocolError(
            f"unknown stage message kind: {words[0]}; run the same release on every"
            " stage"
        )
    if words[5] != STATE_VERSION:
        raise RemoteProtocolError(
            f"unsupported stage state version: got {words[5]}, this stage speaks"
            f" {STATE_VERSION}; run the same release on every stage"
        )
    if words[2] < 0 or words[3] < 0 or words[4] < 0:
        raise RemoteProtocolError(
            f"negative wire count: {kind.name} announces {words[2]} rows,"
            f" {words[3]} tokens, {words[4]} positions"
        )
    # A Stop ends before its sidebands, whatever it counts.
    is_long = words[3] > SIDEBAND_MAX or words[4] > SIDEBAND_MAX
    if is_long and kind is not MessageKind.STOP:
        _check_sidebands(kind, words[3], words[4])
    message = StageMessage(
        kind=kind,
        pos_start=words[1],
        token_count=words[2],
        seq_id=words[6],
        phase=words[7],
        flags=words[8],
        checkpoint_generation=words[9],
        prompt_token_count=words[10],
        decode_step=words[11],
        current_token=words[12],
        source_stage_index=words[13],
        # A NewType is a Python call, twice for each token.
        request_id=words[14],  # type: ignore[arg-type]
        session_id=words[15],  # type: ignore[arg-type]
    )
    return message, words[3], words[4]


def _check_sidebands(kind: MessageKind, token_count: int, position_count: int) -> None:
    if token_count > SIDEBAND_MAX:
        raise RemoteProtocolError(
            f"token sideband count exceeds maximum: {token_count} in {kind.name},"
            f" above {SIDEBAND_MAX}"
        )
    if position_count > SIDEBAND_MAX:
        raise RemoteProtocolError(
            f"position sideband count exceeds maximum: {position_count} in"
            f" {kind.name}, above {SIDEBAND_MAX}"
        )


def _payload_bytes(message: StageMessage, width: int) -> int:
    kind = message.kind
    if kind is MessageKind.STOP:
        return 0
    if kind is not MessageKind.STATE_IMPORT:
        return activation_bytes(
            kind, message.token_count, message.source_stage_index, width, message.flags
        )
    if message.token_count > STATE_IMPORT_MAX_BYTES:
        raise RemoteProtocolError(
            f"state import byte count exceeds maximum: {message.token_count},"
            f" above {STATE_IMPORT_MAX_BYTES}"
        )
    return message.token_count


def _parse_chat(reader: ByteReader) -> Parser[str]:
    what = "the chat sampling metadata"
    (size,) = U32.unpack((yield from reader.read_exact(U32.size, what)))
    if size > CHAT_METADATA_MAX_BYTES:
        raise RemoteProtocolError(
            f"chat sampling metadata length exceeds maximum: {size} bytes,"
            f" above {CHAT_METADATA_MAX_BYTES}"
        )
    data = yield from reader.read_exact(size, what)
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(
            f"chat sampling metadata is not UTF-8: byte {error.start} of {size}"
        ) from error


def _parse_reply(reader: ByteReader) -> Parser[StageReply | Failure]:
    head = yield from reader.read_exact(REPLY_HEAD.size, _REPLY_NAME)
    kind_value, second, third = REPLY_HEAD.unpack(head)
    kind = _REPLY_KINDS.get(kind_value)
    if kind is None:
        reserved = " (reserved)" if kind_value in RESERVED_REPLY_KINDS else ""
        raise RemoteProtocolError(
            f"unknown stage reply kind: {kind_value}{reserved}; run the same release"
            " on every stage"
        )
    if kind is ReplyKind.FAILURE:
        return (yield from _parse_failure(reader, second, third))
    if not 0 <= third <= PREDICTED_TOKENS_MAX:
        _check_predicted(third)
    tail_at = third * WIRE_VALUE_BYTES
    body = yield from reader.read_exact(tail_at + REPLY_TAIL.size, "the reply tokens")
    window_id, marker = REPLY_TAIL.unpack(body[tail_at:])
    if marker not in (0, 1):
        raise RemoteProtocolError(
            f"unknown native MTP draft reply marker: {marker} is neither 0 nor 1"
        )
    draft = (yield from _parse_draft(reader)) if marker else None
    stats = yield from reader.read_exact(STATS.size, "the reply statistics")
    return StageReply(
        kind=kind,
        predicted=second,
        tokens=unpack_values(body[:tail_at]),
        window_id=window_id,
        mtp_draft=draft,
        stats=NO_STATS
        if stats == _NO_STATS_BYTES
        else StageStats(*STATS.unpack(stats)),
    )


def _check_predicted(count: int) -> None:
    if count < 0:
        raise RemoteProtocolError(f"negative predicted token count: {count}")
    if count > PREDICTED_TOKENS_MAX:
        raise RemoteProtocolError(
            f"predicted token count exceeds maximum: {count},"
            f" above {PREDICTED_TOKENS_MAX}"
        )


def _parse_draft(reader: ByteReader) -> Parser[MtpDraft]:
    what = "the native MTP draft"
    (count,) = I32.unpack((yield from reader.read_exact(I32.size, what)))
    _check_predicted(count)
    end = count * WIRE_VALUE_BYTES
    body = yield from reader.read_exact(end + I64.size, what)
    (compute_us,) = I64.unpack(body[end:])
    return MtpDraft(unpack_values(body[:end]), compute_us)


def _parse_failure(
    reader: ByteReader, code_value: int, stage_index: int
) -> Parser[Failure]:
    code = _FAILURE_CODES.get(code_value)
    if code is None:
        raise RemoteProtocolError(
            f"unknown stage failure code: {code_value} of stage {stage_index}"
        )
    (size,) = U32.unpack((yield from reader.read_exact(U32.size, "the failure text")))
    if size > FAILURE_TEXT_MAX_BYTES:
        raise RemoteProtocolError(
            f"stage failure text exceeds maximum: {size} bytes,"
            f" above {FAILURE_TEXT_MAX_BYTES}"
        )
    data = yield from reader.read_exact(size, "the failure text")
    try:
        return Failure(code, stage_index, str(data, "utf-8"))
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(
            f"stage failure text is not UTF-8: {bytes(data)!r}"
        ) from error
