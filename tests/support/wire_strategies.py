"""Hypothesis strategies for values of the wire; every value drawn is a legal one."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st

from skippyd.core.wire.activation import activation_bytes
from skippyd.core.wire.kinds import (
    MessageKind,
    ReplyKind,
    StateFlag,
    carries_activation,
    phase_of,
    required_flags,
)
from skippyd.core.wire.messages import StageMessage
from skippyd.core.wire.replies import Failure, MtpDraft, StageReply, StageStats
from skippyd.core.wire.sampling import SamplingBlock
from skippyd.errors import FailureCode
from skippyd.ids import RequestId, SessionId


WIDTH = 3
"""Activation width of every drawn message."""

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
f32 = st.floats(width=32, allow_nan=False)
token_ids = st.lists(i32, max_size=5).map(tuple)


def wire_text(max_bytes: int) -> st.SearchStrategy[str]:
    """Text that fits `max_bytes` as UTF-8."""
    return st.text(max_size=max_bytes // 4)


def sampling_blocks() -> st.SearchStrategy[SamplingBlock]:
    """Blocks whose lists are within their maxima."""
    return st.builds(
        SamplingBlock,
        flags=u32,
        seed=u32,
        temperature=f32,
        top_p=f32,
        top_k=i32,
        min_p=f32,
        presence_penalty=f32,
        frequency_penalty=f32,
        repeat_penalty=f32,
        penalty_last_n=i32,
        logit_bias=st.lists(st.tuples(i32, f32), max_size=4).map(tuple),
        typical_p=f32,
        top_nsigma=f32,
        dynatemp_range=f32,
        dynatemp_exponent=f32,
        dry_multiplier=f32,
        dry_base=f32,
        dry_allowed_length=i32,
        dry_penalty_last_n=i32,
        dry_sequence_breakers=st.lists(wire_text(64), max_size=3).map(tuple),
        xtc_probability=f32,
        xtc_threshold=f32,
        mirostat_mode=i32,
        mirostat_entropy=f32,
        mirostat_learning_rate=f32,
        samplers=st.lists(wire_text(64), max_size=3).map(tuple),
        ignore_eos=u32,
    )


@st.composite
def stage_messages(draw: st.DrawFn) -> StageMessage:
    """Messages of every kind as a reader of width WIDTH gives them."""
    kind = draw(st.sampled_from(MessageKind))
    message = StageMessage(
        kind=kind,
        pos_start=draw(i32),
        seq_id=draw(i32),
        checkpoint_generation=draw(i32),
        prompt_token_count=draw(i32),
        decode_step=draw(i32),
        current_token=draw(i32),
        request_id=RequestId(draw(u64)),
        session_id=SessionId(draw(u64)),
        sampling=draw(st.none() | sampling_blocks()),
        chat_metadata=draw(st.none() | wire_text(80)),
    )
    message.flags = required_flags(kind).value | draw(
        st.sampled_from([0, 16, 64, 128, 256])
    )
    if message.sampling is not None:
        message.flags |= StateFlag.SAMPLING.value
    if message.chat_metadata is not None:
        message.flags |= StateFlag.CHAT_SAMPLING_METADATA.value
    assert message.phase == phase_of(kind)
    _draw_body(draw, message)
    return message


def _draw_body(draw: st.DrawFn, message: StageMessage) -> None:
    if message.kind is MessageKind.STATE_IMPORT:
        message.raw = draw(st.binary(max_size=20))
        message.token_count = len(message.raw)
        return
    message.token_count = draw(st.integers(0, 3))
    if message.kind is MessageKind.STOP:
        return
    message.tokens = draw(token_ids)
    message.positions = draw(token_ids)
    if carries_activation(message.kind) and draw(st.booleans()):
        message.source_stage_index = draw(st.integers(0, 9))
        size_bytes = activation_bytes(
            message.kind, message.token_count, 0, WIDTH, message.flags
        )
        message.activation = draw(st.binary(min_size=size_bytes, max_size=size_bytes))


def stage_stats() -> st.SearchStrategy[StageStats]:
    """Statistics with any values that fit."""
    return st.lists(i64, min_size=27, max_size=27).map(lambda v: StageStats(*v))


def replies() -> st.SearchStrategy[StageReply | Failure]:
    """Replies of every kind, failures with texts below their maximum."""
    return st.builds(
        StageReply,
        kind=st.sampled_from([kind for kind in ReplyKind if kind.name != "FAILURE"]),
        predicted=i32,
        tokens=token_ids,
        window_id=i32,
        mtp_draft=st.none() | st.builds(MtpDraft, token_ids, i64),
        stats=stage_stats() | st.just(StageStats()),
    ) | st.builds(Failure, st.sampled_from(FailureCode), i32, wire_text(512))


@st.composite
def split_points(draw: st.DrawFn, size: int) -> list[tuple[int, int]]:
    """Consecutive (start, end) pieces that cover `size` bytes in any way."""
    cuts = draw(st.lists(st.integers(0, size), max_size=8))
    edges = [0, *sorted(cuts), size]
    return list(itertools.pairwise(edges))
