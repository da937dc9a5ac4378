"""One message between stages as a value, and the rules that hold between its fields.

`StageMessage` is the hot-path record; what stage 0 sends is built by the functions of
`requests.py`, what a stage passes on by `forwarded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from skippyd.core.wire.kinds import (
    MessageKind,
    StateFlag,
    carries_activation,
    expected_state,
    is_cache_query,
    phase_of,
    required_flags,
)
from skippyd.errors import LocalProtocolError, RemoteProtocolError


if TYPE_CHECKING:
    from skippyd.core.wire.activation import Payload
    from skippyd.core.wire.sampling import SamplingBlock
    from skippyd.ids import RequestId, SessionId


NULL_TOKEN: Final = -1
"""current_token when there is none."""

DRIVER_SIDE: Final = -1
"""source_stage_index of what no stage computed: no activation follows."""

_CHECKED_FLAGS: Final = (StateFlag.FINAL_CHUNK | StateFlag.LIGHT_CONTEXT).value


def _default_phase(message: StageMessage) -> int:
    return phase_of(message.kind)


def _default_flags(message: StageMessage) -> int:
    return int(required_flags(message.kind))


@attrs.define(kw_only=True)
class StageMessage:
    """A message of generation 8; left out, fields have a fresh state header's values.

    `phase` and `flags` are plain integers as they stand on the wire: `check_state`
    judges them. The flags SAMPLING and CHAT_SAMPLING_METADATA are the writer's
    business: it derives them from the optional parts.

    Attributes:
        kind: What is asked.
        pos_start: Position of the first row, or the base of a window.
        token_count: Rows to compute; tokens to keep (TrimSession), bytes (StateImport).
        seq_id: Window id of a VerifyWindow.
        source_stage_index: Stage that computed the activation, -1 when none follows.
        tokens: Token sideband, passed on unchanged by every stage.
        positions: Position sideband, likewise.
        activation: Raw little-endian f32 rows, empty when there are none.
        raw: Bytes of a StateImport, else empty.
    """

    kind: MessageKind
    pos_start: int = 0
    token_count: int = 0
    seq_id: int = 0
    phase: int = attrs.field(default=attrs.Factory(_default_phase, takes_self=True))
    flags: int = attrs.field(default=attrs.Factory(_default_flags, takes_self=True))
    checkpoint_generation: int = 0
    prompt_token_count: int = 0
    decode_step: int = -1
    current_token: int = NULL_TOKEN
    source_stage_index: int = DRIVER_SIDE
    request_id: RequestId
    session_id: SessionId
    sampling: SamplingBlock | None = None
    chat_metadata: str | None = None
    tokens: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    activation: Payload = b""
    raw: Payload = b""


@attrs.frozen
class OrderKey:
    """Where a message stands in its request; see `is_older`."""

    flow: tuple[RequestId, SessionId]
    order: tuple[int, int, int]


def order_key(message: StageMessage) -> OrderKey:
    """Key of a message for telling stale ones."""
    return OrderKey(
        (message.request_id, message.session_id),
        (
            message.checkpoint_generation,
            message.prompt_token_count,
            message.decode_step,
        ),
    )


def is_older(candidate: OrderKey, current: OrderKey) -> bool:
    """Whether `candidate` is a stale message of the same request and session."""
    return candidate.flow == current.flow and candidate.order < current.order


def check_state(message: StageMessage) -> None:
    """Check that phase and flags are the ones that the kind demands.

    Raises:
        RemoteProtocolError: They are not; the connection cannot go on.
    """
    expected = expected_state(message.kind)
    found = (message.phase, message.flags & _CHECKED_FLAGS)
    if expected is None or found == expected:
        return
    raise RemoteProtocolError(
        "binary stage state does not match message kind:"
        f" {message.kind.name} needs phase {expected[0]} and flags {expected[1]},"
        f" got phase {found[0]} and flags {found[1]}"
    )


def forwarded(
    message: StageMessage, *, source_stage_index: int, activation: Payload
) -> StageMessage:
    """Turn a message that a stage has worked on into the one for its downstream.

    Work keeps everything but the chat metadata and carries this stage's index and
    activation. A control message keeps source index -1: with an index its token count
    would announce rows. Only ConfigureGeneration relays chat metadata.

    Raises:
        LocalProtocolError: Work without an activation, or control with one.
    """
    kind = message.kind
    work = carries_activation(kind)
    if work and not len(activation):
        raise LocalProtocolError(
            "stage has downstream but produced an empty activation payload:"
            f" stage {source_stage_index}, {kind.name} of"
            f" {message.token_count} rows; stop the request"
        )
    if not work and len(activation):
        raise LocalProtocolError(
            f"{kind.name} carries no activation payload, got {len(activation)} bytes"
        )
    names_source = work or is_cache_query(kind)
    relays_chat = kind is MessageKind.CONFIGURE_GENERATION
    # Written out: attrs.evolve costs three times as much on the path of every token.
    return StageMessage(
        kind=kind,
        pos_start=message.pos_start,
        token_count=message.token_count,
        seq_id=message.seq_id,
        phase=message.phase,
        flags=message.flags,
        checkpoint_generation=message.checkpoint_generation,
        prompt_token_count=message.prompt_token_count,
        decode_step=message.decode_step,
        current_token=message.current_token,
        source_stage_index=source_stage_index if names_source else DRIVER_SIDE,
        request_id=message.request_id,
        session_id=message.session_id,
        sampling=message.sampling,
        chat_metadata=message.chat_metadata if relays_chat else None,
        tokens=message.tokens,
        positions=message.positions,
        activation=activation,
        raw=message.raw,
    )
