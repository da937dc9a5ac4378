"""Values to bytes, for messages, replies and the opening of a connection.

The writer refuses what a reader would refuse, before a byte leaves: a connection that
sent a bad frame cannot be resynchronised.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import attrs

from skippyd.core.wire.activation import Payload, row_factor
from skippyd.core.wire.kinds import MessageKind, ReplyKind, StateFlag, is_cache_query
from skippyd.core.wire.layout import (
    AUTH_HEAD,
    I32,
    I64,
    MESSAGE_PREFIX,
    READY_MAGIC,
    REPLY_HEAD,
    REPLY_TAIL,
    STATS,
    TRANSPORT_AUTH_MAGIC,
    U32,
    pack_values,
)
from skippyd.core.wire.limits import (
    ACTIVATION_MAX_BYTES,
    AUTH_TOKEN_MAX_BYTES,
    CHAT_METADATA_MAX_BYTES,
    FAILURE_TEXT_MAX_BYTES,
    PREDICTED_TOKENS_MAX,
    SIDEBAND_MAX,
    STATE_IMPORT_MAX_BYTES,
    STATE_VERSION,
    WIRE_VALUE_BYTES,
)
from skippyd.core.wire.replies import (
    NO_STATS,
    Failure,
    MtpDraft,
    StageReply,
)
from skippyd.core.wire.sampling import encode_sampling
from skippyd.errors import LocalProtocolError


if TYPE_CHECKING:
    from skippyd.core.wire.messages import StageMessage


_SAMPLING: Final = StateFlag.SAMPLING.value
_CHAT: Final = StateFlag.CHAT_SAMPLING_METADATA.value
_DERIVED: Final = _SAMPLING | _CHAT
_NO_STATS_BYTES: Final = bytes(STATS.size)
_ROWLESS: Final = frozenset(
    kind
    for kind in MessageKind
    if is_cache_query(kind) or kind in (MessageKind.STOP, MessageKind.STATE_IMPORT)
)


def encode_message(message: StageMessage) -> list[bytes | memoryview]:
    """Encode a message as buffers to write in this order.

    The first holds prefix, optional parts and sidebands; the activation (or the raw
    bytes of a StateImport) follows uncopied when there is one.

    Raises:
        LocalProtocolError: The message would break the protocol.
    """
    _check_counts(message)
    _check_payload(message)
    try:
        head = _encode_head(message)
    except (struct.error, OverflowError) as error:
        raise LocalProtocolError(
            f"a number of {message.kind.name} does not fit its width: {error}"
        ) from error
    except UnicodeEncodeError as error:
        raise LocalProtocolError(
            f"a text of {message.kind.name} cannot be UTF-8: {error.reason}"
            f" at character {error.start}"
        ) from error
    payload = message.raw or message.activation
    if not len(payload):
        return [head]
    return [head, payload if isinstance(payload, bytes) else _as_bytes(payload)]


def encode_reply(reply: StageReply | Failure) -> bytes:
    """Encode a reply; the text of a Failure is cut at a character to its maximum.

    Raises:
        LocalProtocolError: The reply would break the protocol.
    """
    try:
        if isinstance(reply, Failure):
            return _encode_failure(reply)
        return _encode_stage_reply(reply)
    except struct.error as error:
        raise LocalProtocolError(
            f"a number of a {type(reply).__name__} does not fit its width: {error}"
        ) from error


def encode_ready() -> bytes:
    """Encode the word by which a stage says that it serves; also a client's hello."""
    return I32.pack(READY_MAGIC)


def encode_auth_preamble(token: bytes) -> bytes:
    """Encode what a dialling side sends first.

    Raises:
        LocalProtocolError: The token is empty or longer than its maximum.
    """
    if not 1 <= len(token) <= AUTH_TOKEN_MAX_BYTES:
        raise LocalProtocolError(
            f"transport auth token length out of range: {len(token)} is not within"
            f" 1..{AUTH_TOKEN_MAX_BYTES}"
        )
    return AUTH_HEAD.pack(TRANSPORT_AUTH_MAGIC, len(token)) + token


def _check_counts(message: StageMessage) -> None:
    if message.token_count < 0:
        raise LocalProtocolError(
            f"negative wire count: token_count {message.token_count}"
            f" of {message.kind.name}"
        )
    if len(message.tokens) > SIDEBAND_MAX:
        raise LocalProtocolError(
            f"too many tokens: {len(message.tokens)}, above {SIDEBAND_MAX};"
            " send smaller chunks"
        )
    if len(message.positions) > SIDEBAND_MAX:
        raise LocalProtocolError(
            f"too many position sideband values: {len(message.positions)},"
            f" above {SIDEBAND_MAX}; send smaller chunks"
        )


def _check_payload(message: StageMessage) -> None:
    kind = message.kind
    if kind in _ROWLESS:
        _check_rowless(message)
    elif len(message.raw):
        raise LocalProtocolError(f"{kind.name} carries no raw bytes")
    size_bytes = memoryview(message.activation).nbytes
    if size_bytes > ACTIVATION_MAX_BYTES:
        raise LocalProtocolError(
            f"activation payload byte count exceeds maximum: {size_bytes} bytes,"
            f" above {ACTIVATION_MAX_BYTES}; send smaller chunks"
        )
    rows = 0
    if message.source_stage_index >= 0 and kind not in _ROWLESS:
        rows = message.token_count * row_factor(message.flags)
    if bool(rows) != bool(size_bytes) or (
        rows and size_bytes % (rows * WIRE_VALUE_BYTES)
    ):
        raise LocalProtocolError(
            f"activation payload byte count mismatch: {kind.name} announces {rows}"
            f" rows of f32 and holds {size_bytes} bytes"
        )


def _check_rowless(message: StageMessage) -> None:
    kind = message.kind
    ends_early = kind in (MessageKind.STOP, MessageKind.STATE_IMPORT)
    if ends_early and (message.tokens or message.positions):
        raise LocalProtocolError(f"{kind.name} carries no sidebands")
    if kind is MessageKind.STATE_IMPORT:
        _check_raw(message)
    elif len(message.raw):
        raise LocalProtocolError(f"{kind.name} carries no raw bytes")


def _check_raw(message: StageMessage) -> None:
    size_bytes = memoryview(message.raw).nbytes
    if size_bytes != message.token_count or size_bytes > STATE_IMPORT_MAX_BYTES:
        raise LocalProtocolError(
            f"state import raw byte count mismatch: {size_bytes} bytes where"
            f" {message.token_count} are announced and {STATE_IMPORT_MAX_BYTES}"
            " are the maximum"
        )


def _encode_head(message: StageMessage) -> bytes:
    flags = message.flags & ~_DERIVED
    parts = [b""]
    if message.sampling is not None:
        flags |= _SAMPLING
        parts.append(encode_sampling(message.sampling))
    if message.chat_metadata is not None:
        flags |= _CHAT
        parts.append(_encode_chat(message.chat_metadata))
    parts[0] = MESSAGE_PREFIX.pack(
        message.kind,
        message.pos_start,
        message.token_count,
        len(message.tokens),
        len(message.positions),
        STATE_VERSION,
        message.seq_id,
        message.phase,
        flags,
        message.checkpoint_generation,
        message.prompt_token_count,
        message.decode_step,
        message.current_token,
        message.source_stage_index,
        message.request_id,
        message.session_id,
    )
    if message.tokens:
        parts.append(pack_values(message.tokens))
    if message.positions:
        parts.append(pack_values(message.positions))
    return b"".join(parts)


def _encode_chat(metadata: str) -> bytes:
    data = metadata.encode("utf-8")
    if len(data) > CHAT_METADATA_MAX_BYTES:
        raise LocalProtocolError(
            f"chat sampling metadata is too large: {len(data)} bytes,"
            f" above {CHAT_METADATA_MAX_BYTES}; use a smaller grammar"
        )
    return U32.pack(len(data)) + data


def _encode_stage_reply(reply: StageReply) -> bytes:
    if reply.kind is ReplyKind.FAILURE:
        raise LocalProtocolError("a Failure reply is a Failure value, not a StageReply")
    count, draft = len(reply.tokens), reply.mtp_draft
    if count > PREDICTED_TOKENS_MAX:
        raise _too_many_predicted(count)
    return b"".join(
        (
            REPLY_HEAD.pack(reply.kind, reply.predicted, count),
            pack_values(reply.tokens),
            REPLY_TAIL.pack(reply.window_id, draft is not None),
            b"" if draft is None else _encode_draft(draft),
            _NO_STATS_BYTES
            if reply.stats is NO_STATS
            else STATS.pack(*attrs.astuple(reply.stats)),
        )
    )


def _encode_draft(draft: MtpDraft) -> bytes:
    if len(draft.tokens) > PREDICTED_TOKENS_MAX:
        raise _too_many_predicted(len(draft.tokens))
    return b"".join(
        (
            I32.pack(len(draft.tokens)),
            pack_values(draft.tokens),
            I64.pack(draft.proposal_compute_us),
        )
    )


def _encode_failure(failure: Failure) -> bytes:
    text = failure.text.encode("utf-8", "replace")[:FAILURE_TEXT_MAX_BYTES]
    # A cut inside a character leaves a broken tail, which is dropped.
    text = text.decode("utf-8", "ignore").encode("utf-8")
    head = REPLY_HEAD.pack(ReplyKind.FAILURE, failure.code, failure.stage_index)
    return head + U32.pack(len(text)) + text


def _too_many_predicted(count: int) -> LocalProtocolError:
    return LocalProtocolError(
        f"too many predicted tokens: {count}, above {PREDICTED_TOKENS_MAX}"
    )


def _as_bytes(payload: Payload) -> memoryview:
    return memoryview(payload).cast("B")
