"""The numbers that name things on the wire, and the questions one asks of them.

Tables, not ladders: a new message kind is one row in each table below.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final


class MessageKind(IntEnum):
    """What a message asks of the stage that receives it.

    10 to 12 were removed before this generation and 23 came after it; both are
    unknown here.
    """

    PREFILL_EMBD = 1
    DECODE_EMBD = 2
    STOP = 3
    PREFILL_FINAL_EMBD = 4
    DECODE_REPLAY_EMBD = 5
    DECODE_REPLAY_FINAL_EMBD = 6
    STATE_IMPORT = 7
    DECODE_READOUT = 8
    DECODE_LIGHT_CTX = 9
    STATE_EXPORT = 13
    CONFIGURE_GENERATION = 14
    PROBE_PREFILL = 15
    RESTORE_PREFILL = 16
    TRY_RESTORE_PREFILL = 17
    TRY_RESTORE_PREFILL_DECODE = 18
    TRIM_SESSION = 19
    PREDICTION_RETURN_OPEN = 20
    VERIFY_WINDOW = 21
    RETIRE_VERIFY_WINDOW = 22


class ReplyKind(IntEnum):
    """What a reply says; 4 and 5 are reserved and refused until they mean something."""

    ACK = 1
    PREDICTED_TOKEN = 2
    PREDICTED_TOKENS = 3
    FAILURE = 127


RESERVED_REPLY_KINDS: Final = frozenset({4, 5})
"""Per-row detail (4) and hidden state (5): numbers kept free for them."""


class Phase(IntEnum):
    """Part of a generation that a message belongs to."""

    PREFILL = 1
    DECODE = 2
    DECODE_REPLAY = 3
    DECODE_LIGHT = 4


class StateFlag(IntFlag):
    """Bits of the state header; 4 is retired and stays unused."""

    FINAL_CHUNK = 1
    LIGHT_CONTEXT = 2
    SAMPLING = 8
    FULL_STATE = 16
    CHAT_SAMPLING_METADATA = 32
    RWKV7_V_FIRST = 64
    GEMMA3N_ALTUP = 128
    INKLING_MTP_EMBD = 256


_K = MessageKind

_PHASES: Final[dict[MessageKind, Phase]] = {
    **dict.fromkeys(_K, Phase.DECODE),
    **dict.fromkeys(
        (
            _K.PREFILL_EMBD,
            _K.PREFILL_FINAL_EMBD,
            _K.STATE_IMPORT,
            _K.STATE_EXPORT,
            _K.CONFIGURE_GENERATION,
            _K.PROBE_PREFILL,
            _K.RESTORE_PREFILL,
            _K.TRY_RESTORE_PREFILL,
            _K.TRY_RESTORE_PREFILL_DECODE,
            _K.TRIM_SESSION,
            _K.RETIRE_VERIFY_WINDOW,
        ),
        Phase.PREFILL,
    ),
    _K.DECODE_REPLAY_EMBD: Phase.DECODE_REPLAY,
    _K.DECODE_REPLAY_FINAL_EMBD: Phase.DECODE_REPLAY,
    _K.DECODE_LIGHT_CTX: Phase.DECODE_LIGHT,
}

_REQUIRED_FLAGS: Final[dict[MessageKind, StateFlag]] = {
    _K.PREFILL_FINAL_EMBD: StateFlag.FINAL_CHUNK,
    _K.DECODE_REPLAY_FINAL_EMBD: StateFlag.FINAL_CHUNK,
    _K.DECODE_LIGHT_CTX: StateFlag.LIGHT_CONTEXT,
}
_NO_FLAGS: Final = StateFlag(0)

_PREDICTS: Final = frozenset(
    {
        _K.DECODE_EMBD,
        _K.PREFILL_FINAL_EMBD,
        _K.DECODE_REPLAY_FINAL_EMBD,
        _K.DECODE_READOUT,
        _K.DECODE_LIGHT_CTX,
        _K.VERIFY_WINDOW,
    }
)

_WORK: Final = frozenset(
    {
        _K.PREFILL_EMBD,
        _K.DECODE_EMBD,
        _K.PREFILL_FINAL_EMBD,
        _K.DECODE_REPLAY_EMBD,
        _K.DECODE_REPLAY_FINAL_EMBD,
        _K.DECODE_READOUT,
        _K.DECODE_LIGHT_CTX,
        _K.TRY_RESTORE_PREFILL_DECODE,
        _K.VERIFY_WINDOW,
    }
)

_CACHE_QUERIES: Final = frozenset(
    {_K.PROBE_PREFILL, _K.RESTORE_PREFILL, _K.TRY_RESTORE_PREFILL}
)

_AUTHORITATIVE: Final = frozenset(
    {_K.DECODE_EMBD, _K.DECODE_READOUT, _K.DECODE_LIGHT_CTX, _K.VERIFY_WINDOW}
)

_ANY_STATE: Final = frozenset(
    {
        _K.STATE_IMPORT,
        _K.STATE_EXPORT,
        _K.CONFIGURE_GENERATION,
        _K.TRIM_SESSION,
        _K.RETIRE_VERIFY_WINDOW,
    }
)


_EXPECTED_STATE: Final[dict[MessageKind, tuple[int, int] | None]] = {
    kind: None
    if kind in _ANY_STATE
    else (int(_PHASES[kind]), int(_REQUIRED_FLAGS.get(kind, _NO_FLAGS)))
    for kind in _K
}


def phase_of(kind: MessageKind) -> Phase:
    """Phase that a message of this kind carries in its state header."""
    return _PHASES[kind]


def required_flags(kind: MessageKind) -> StateFlag:
    """Flags that this kind demands; FINAL_CHUNK and LIGHT_CONTEXT are barred elsewhere."""
    return _REQUIRED_FLAGS.get(kind, _NO_FLAGS)


def predicts(kind: MessageKind) -> bool:
    """Whether the final stage must answer this kind with predicted tokens."""
    return kind in _PREDICTS


def carries_activation(kind: MessageKind) -> bool:
    """Whether this kind is work: rows to compute, passed on with an activation."""
    return kind in _WORK


def is_cache_query(kind: MessageKind) -> bool:
    """Whether this kind asks for a cached prefix; it never carries a payload."""
    return kind in _CACHE_QUERIES


def has_authoritative_position(kind: MessageKind) -> bool:
    """Whether pos_start (0 or more) is the committed position to rewind to first."""
    return kind in _AUTHORITATIVE


def expected_state(kind: MessageKind) -> tuple[int, int] | None:
    """Phase and required flags of a kind as numbers; None where any will do."""
    return _EXPECTED_STATE[kind]
