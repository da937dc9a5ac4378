"""Replies: acknowledgements, predictions, failures, and their statistics.

A stage folds the statistics of its downstream into its own with `merge`; the rule of
each field is in one table beside its name.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

import attrs

from skippyd.core.wire.kinds import ReplyKind


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.errors import FailureCode


_I64_MAX: Final = 2**63 - 1
_I64_MIN: Final = -(2**63)


@attrs.frozen
class StageStats:
    """The 27 statistics of a reply, in wire order; microseconds, bytes and counts.

    Masks have bit n for stage n. The `prefill_edge` fields describe the slowest
    boundary between two stages, the `prefill_compute` fields the slowest full chunk.
    """

    kv_lookup_hits: int = 0
    kv_lookup_misses: int = 0
    kv_lookup_errors: int = 0
    kv_imported_pages: int = 0
    kv_imported_tokens: int = 0
    kv_recorded_pages: int = 0
    kv_recorded_bytes: int = 0
    kv_hit_stage_mask: int = 0
    kv_record_stage_mask: int = 0
    verify_window_compute_us: int = 0
    verify_window_forward_write_us: int = 0
    verify_window_downstream_wait_us: int = 0
    verify_window_total_us: int = 0
    verify_window_stage_count: int = 0
    verify_window_request_count: int = 0
    verify_window_token_count: int = 0
    verify_window_max_tokens: int = 0
    prefill_edge_write_us_max: int = 0
    prefill_edge_wait_us_max: int = 0
    prefill_edge_total_us_max: int = 0
    prefill_edge_stage_index: int = 0
    prefill_edge_activation_bytes_max: int = 0
    prefill_edge_observation_count: int = 0
    prefill_compute_us_at_slowest_rate: int = 0
    prefill_compute_stage_index: int = 0
    prefill_compute_token_count_at_slowest_rate: int = 0
    prefill_compute_observation_count: int = 0


NO_STATS: Final = StageStats()


def _add(left: int, right: int) -> int:
    # A peer's numbers are untrusted: saturate instead of failing to encode later.
    return max(_I64_MIN, min(_I64_MAX, left + right))


def _larger(left: int, right: int) -> int:
    return max(left, right)


_RULES: Final[dict[str, Callable[[int, int], int]]] = {
    "kv_lookup_hits": _add,
    "kv_lookup_misses": _add,
    "kv_lookup_errors": _add,
    "kv_imported_pages": _add,
    "kv_imported_tokens": _add,
    "kv_recorded_pages": _add,
    "kv_recorded_bytes": _add,
    "kv_hit_stage_mask": operator.or_,
    "kv_record_stage_mask": operator.or_,
    "verify_window_compute_us": _add,
    "verify_window_forward_write_us": _add,
    "verify_window_downstream_wait_us": _add,
    "verify_window_total_us": _add,
    "verify_window_stage_count": _add,
    "verify_window_request_count": _add,
    "verify_window_token_count": _add,
    "verify_window_max_tokens": _larger,
    "prefill_edge_write_us_max": _larger,
    "prefill_edge_wait_us_max": _larger,
    "prefill_edge_observation_count": _add,
    "prefill_compute_observation_count": _add,
}
_TOGETHER_WITH_EDGE_TOTAL: Final = (
    "prefill_edge_total_us_max",
    "prefill_edge_stage_index",
    "prefill_edge_activation_bytes_max",
)
_TOGETHER_WITH_COMPUTE_RATE: Final = (
    "prefill_compute_us_at_slowest_rate",
    "prefill_compute_stage_index",
    "prefill_compute_token_count_at_slowest_rate",
)


def prefill_edge(
    *, stage_index: int, write_us: int, wait_us: int, activation_bytes: int
) -> StageStats:
    """Statistics of one prefill chunk sent over the boundary behind a stage."""
    return StageStats(
        prefill_edge_write_us_max=write_us,
        prefill_edge_wait_us_max=wait_us,
        prefill_edge_total_us_max=write_us + wait_us,
        prefill_edge_stage_index=stage_index,
        prefill_edge_activation_bytes_max=activation_bytes,
        prefill_edge_observation_count=1,
    )


def prefill_compute(
    *, stage_index: int, compute_us: int, token_count: int
) -> StageStats:
    """Statistics of one prefill chunk computed by a stage."""
    return StageStats(
        prefill_compute_us_at_slowest_rate=compute_us,
        prefill_compute_stage_index=stage_index,
        prefill_compute_token_count_at_slowest_rate=token_count,
        prefill_compute_observation_count=1,
    )


def merge(own: StageStats, downstream: StageStats) -> StageStats:
    """Fold a downstream's statistics into a stage's own (sums stay within i64)."""
    if downstream is NO_STATS:
        return own
    merged: dict[str, int] = {}
    for name, rule in _RULES.items():
        merged[name] = rule(getattr(own, name), getattr(downstream, name))
    edge = _slower_edge(own, downstream)
    for name in _TOGETHER_WITH_EDGE_TOTAL:
        merged[name] = getattr(edge, name)
    compute = _slower_compute(own, downstream)
    for name in _TOGETHER_WITH_COMPUTE_RATE:
        merged[name] = getattr(compute, name)
    return StageStats(**merged)


def _slower_edge(own: StageStats, candidate: StageStats) -> StageStats:
    if candidate.prefill_edge_total_us_max > own.prefill_edge_total_us_max:
        return candidate
    return own


def _slower_compute(own: StageStats, candidate: StageStats) -> StageStats:
    # More tokens first: a short last chunk would otherwise win by its poor rate.
    if not candidate.prefill_compute_observation_count:
        return own
    if not own.prefill_compute_observation_count:
        return candidate
    return max(own, candidate, key=_compute_rank)


def _compute_rank(stats: StageStats) -> tuple[int, int]:
    return (
        stats.prefill_compute_token_count_at_slowest_rate,
        stats.prefill_compute_us_at_slowest_rate,
    )


@attrs.frozen
class MtpDraft:
    """Tokens that the model's own draft head proposes after a prediction."""

    tokens: tuple[int, ...]
    proposal_compute_us: int


@attrs.define(kw_only=True)
class StageReply:
    """An acknowledgement or a prediction.

    Attributes:
        kind: ACK, PREDICTED_TOKEN or PREDICTED_TOKENS.
        predicted: The first token, 0 when there is none.
        window_id: seq_id of the VerifyWindow that is answered, else 0.
    """

    kind: ReplyKind
    predicted: int = 0
    tokens: tuple[int, ...] = ()
    window_id: int = 0
    mtp_draft: MtpDraft | None = None
    stats: StageStats = NO_STATS


@attrs.frozen
class Failure:
    """Why a stage gives up; the connection closes behind it."""

    code: FailureCode
    stage_index: int
    text: str


def ack(stats: StageStats = NO_STATS) -> StageReply:
    """Acknowledge a message."""
    return StageReply(kind=ReplyKind.ACK, stats=stats)


def predicted_token(
    token: int,
    stats: StageStats = NO_STATS,
    *,
    mtp_draft: MtpDraft | None = None,
) -> StageReply:
    """Answer with one sampled token."""
    return StageReply(
        kind=ReplyKind.PREDICTED_TOKEN,
        predicted=token,
        tokens=(token,),
        mtp_draft=mtp_draft,
        stats=stats,
    )


def predicted_tokens(
    tokens: tuple[int, ...],
    stats: StageStats = NO_STATS,
    *,
    window_id: int = 0,
    mtp_draft: MtpDraft | None = None,
) -> StageReply:
    """Answer a verify window with the tokens of its rows."""
    return StageReply(
        kind=ReplyKind.PREDICTED_TOKENS,
        predicted=tokens[0] if tokens else 0,
        tokens=tokens,
        window_id=window_id,
        mtp_draft=mtp_draft,
        stats=stats,
    )
