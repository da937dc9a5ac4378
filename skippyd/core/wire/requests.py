"""Builders for everything that stage 0 asks of the chain.

Each fills a fresh state header (the defaults of `StageMessage`), so that a caller names
only what differs. None carries an activation: `messages.forwarded` adds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.wire.kinds import MessageKind, Phase
from skippyd.core.wire.messages import StageMessage


if TYPE_CHECKING:
    from skippyd.core.wire.sampling import SamplingBlock
    from skippyd.ids import RequestId, SessionId


def prefill(
    *,
    request_id: RequestId,
    session_id: SessionId,
    pos_start: int,
    tokens: tuple[int, ...],
    prompt_token_count: int,
    positions: tuple[int, ...] = (),
) -> StageMessage:
    """Compute a prompt chunk that is not the last; acknowledged before it is computed."""
    return StageMessage(
        kind=MessageKind.PREFILL_EMBD,
        request_id=request_id,
        session_id=session_id,
        pos_start=pos_start,
        token_count=len(tokens),
        prompt_token_count=prompt_token_count,
        tokens=tokens,
        positions=positions,
    )


def prefill_final(
    *,
    request_id: RequestId,
    session_id: SessionId,
    pos_start: int,
    tokens: tuple[int, ...],
    prompt_token_count: int,
    positions: tuple[int, ...] = (),
    sampling: SamplingBlock | None = None,
) -> StageMessage:
    """Compute the last prompt chunk; the final stage answers with the first token."""
    return StageMessage(
        kind=MessageKind.PREFILL_FINAL_EMBD,
        request_id=request_id,
        session_id=session_id,
        pos_start=pos_start,
        token_count=len(tokens),
        prompt_token_count=prompt_token_count,
        tokens=tokens,
        positions=positions,
        sampling=sampling,
    )


def decode(
    *,
    request_id: RequestId,
    session_id: SessionId,
    pos_start: int,
    token: int,
    prompt_token_count: int,
    decode_step: int,
    sampling: SamplingBlock | None = None,
) -> StageMessage:
    """Compute one token; `pos_start` is the committed position, or -1 to go on."""
    return StageMessage(
        kind=MessageKind.DECODE_EMBD,
        phase=Phase.DECODE,
        flags=0,
        request_id=request_id,
        session_id=session_id,
        pos_start=pos_start,
        token_count=1,
        prompt_token_count=prompt_token_count,
        decode_step=decode_step,
        current_token=token,
        sampling=sampling,
        tokens=(token,),
    )


def decode_readout(
    *,
    request_id: RequestId,
    session_id: SessionId,
    pos_start: int,
    token: int,
    prompt_token_count: int,
    decode_step: int,
    sampling: SamplingBlock | None = None,
) -> StageMessage:
    """Compute one token for its readout; otherwise like `decode`."""
    return StageMessage(
        kind=MessageKind.DECODE_READOUT,
        request_id=request_id,
        session_id=session_id,
        pos_start=pos_start,
        token_count=1,
        prompt_token_count=prompt_token_count,
        decode_step=decode_step,
        current_token=token,
        sampling=sampling,
        tokens=(token,),
    )


def decode_light(
    *,
    request_id: RequestId,
    session_id: SessionId,
    pos_start: int,
    token: int,
    prompt_token_count: int,
    decode_step: int,
    sampling: SamplingBlock | None = None,
) -> StageMessage:
    """Compute one token with light context; otherwise like `decode`."""
    return StageMessage(
        kind=MessageKind.DECODE_LIGHT_CTX,
        request_id=request_id,
        session_id=session_id,
        pos_start=pos_start,
        token_count=1,
        prompt_token_count=prompt_token_count,
        decode_step=decode_step,
        current_token=token,
        sampling=sampling,
        tokens=(token,),
    )


def decode_replay(
    *,
    request_id: RequestId,
    session_id: SessionId,
    pos_start: int,
    tokens: tuple[int, ...],
    prompt_token_count: int,
    positions: tuple[int, ...] = (),
) -> StageMessage:
    """Compute a chunk of a replayed generation; acknowledged."""
    return StageMessage(
        kind=MessageKind.DECODE_REPLAY_EMBD,
        request_id=request_id,
        session_id=session_id,
        pos_start=pos_start,
        token_count=len(tokens),
        prompt_token_count=prompt_token_count,
        tokens=tokens,
        positions=positions,
    )


def decode_replay_final(
    *,
    request_id: RequestId,
    session_id: SessionId,
    pos_start: int,
    tokens: tuple[int, ...],
    prompt_token_count: int,
    positions: tuple[int, ...] = (),
    sampling: SamplingBlock | None = None,
) -> StageMessage:
    """Compute the last replayed chunk; the final stage answers with a token."""
    return StageMessage(
        kind=MessageKind.DECODE_REPLAY_FINAL_EMBD,
        request_id=request_id,
        session_id=session_id,
        pos_start=pos_start,
        token_count=len(tokens),
        prompt_token_count=prompt_token_count,
        tokens=tokens,
        positions=positions,
        sampling=sampling,
    )


def verify_window(
    *,
    request_id: RequestId,
    session_id: SessionId,
    window_id: int,
    pos_start: int,
    tokens: tuple[int, ...],
    prompt_token_count: int,
    decode_step: int,
    checkpoint_generation: int = 0,
) -> StageMessage:
    """Verify drafted inputs from position `pos_start`; all rows are answered at once."""
    return StageMessage(
        kind=MessageKind.VERIFY_WINDOW,
        request_id=request_id,
        session_id=session_id,
        seq_id=window_id,
        pos_start=pos_start,
        token_count=len(tokens),
        prompt_token_count=prompt_token_count,
        decode_step=decode_step,
        checkpoint_generation=checkpoint_generation,
        tokens=tokens,
    )


def retire_verify_window(
    *,
    request_id: RequestId,
    session_id: SessionId,
    window_id: int,
    pos_start: int,
    token_count: int,
    checkpoint_generation: int = 0,
) -> StageMessage:
    """Drop the checkpoint of a window; nothing answers."""
    return StageMessage(
        kind=MessageKind.RETIRE_VERIFY_WINDOW,
        request_id=request_id,
        session_id=session_id,
        seq_id=window_id,
        pos_start=pos_start,
        token_count=token_count,
        checkpoint_generation=checkpoint_generation,
    )


def configure_generation(
    *,
    request_id: RequestId,
    session_id: SessionId,
    prompt_token_count: int,
    sampling: SamplingBlock | None = None,
    chat_metadata: str | None = None,
) -> StageMessage:
    """Set sampling and chat metadata at the final stage before the first chunk."""
    return StageMessage(
        kind=MessageKind.CONFIGURE_GENERATION,
        request_id=request_id,
        session_id=session_id,
        prompt_token_count=prompt_token_count,
        sampling=sampling,
        chat_metadata=chat_metadata,
    )


def trim_session(
    *,
    request_id: RequestId,
    session_id: SessionId,
    keep_token_count: int,
) -> StageMessage:
    """Keep the first `keep_token_count` tokens of the session, drop the rest."""
    return StageMessage(
        kind=MessageKind.TRIM_SESSION,
        request_id=request_id,
        session_id=session_id,
        token_count=keep_token_count,
    )


def stop(
    *,
    request_id: RequestId,
    session_id: SessionId,
) -> StageMessage:
    """End the session's request at every stage; the connection stays."""
    return StageMessage(
        kind=MessageKind.STOP,
        request_id=request_id,
        session_id=session_id,
    )


def prediction_return_open(
    *,
    request_id: RequestId,
    session_id: SessionId,
) -> StageMessage:
    """Bind the connection to this session: predictions travel on it."""
    return StageMessage(
        kind=MessageKind.PREDICTION_RETURN_OPEN,
        request_id=request_id,
        session_id=session_id,
    )


def probe_prefill(
    *,
    request_id: RequestId,
    session_id: SessionId,
    tokens: tuple[int, ...],
) -> StageMessage:
    """Ask every stage whether it has this prefix cached."""
    return StageMessage(
        kind=MessageKind.PROBE_PREFILL,
        request_id=request_id,
        session_id=session_id,
        token_count=len(tokens),
        prompt_token_count=len(tokens),
        tokens=tokens,
    )


def restore_prefill(
    *,
    request_id: RequestId,
    session_id: SessionId,
    tokens: tuple[int, ...],
) -> StageMessage:
    """Restore a cached prefix at every stage."""
    return StageMessage(
        kind=MessageKind.RESTORE_PREFILL,
        request_id=request_id,
        session_id=session_id,
        token_count=len(tokens),
        prompt_token_count=len(tokens),
        tokens=tokens,
    )


def try_restore_prefill(
    *,
    request_id: RequestId,
    session_id: SessionId,
    tokens: tuple[int, ...],
) -> StageMessage:
    """Restore a cached prefix everywhere or nowhere."""
    return StageMessage(
        kind=MessageKind.TRY_RESTORE_PREFILL,
        request_id=request_id,
        session_id=session_id,
        token_count=len(tokens),
        prompt_token_count=len(tokens),
        tokens=tokens,
    )


def try_restore_prefill_decode(
    *,
    request_id: RequestId,
    session_id: SessionId,
    prefix: tuple[int, ...],
    token: int,
    sampling: SamplingBlock | None = None,
) -> StageMessage:
    """Restore a non-empty prefix everywhere or nowhere, then compute `token`: one row."""
    return StageMessage(
        kind=MessageKind.TRY_RESTORE_PREFILL_DECODE,
        request_id=request_id,
        session_id=session_id,
        pos_start=len(prefix),
        token_count=1,
        prompt_token_count=len(prefix),
        current_token=token,
        sampling=sampling,
        tokens=(*prefix, token),
    )
