"""Replies and the merge of their statistics (skippy-facts 1.7)."""

from __future__ import annotations

from functools import reduce

import attrs
from hypothesis import given, settings

from skippyd.core.wire.kinds import ReplyKind
from skippyd.core.wire.layout import STATS
from skippyd.core.wire.replies import (
    NO_STATS,
    MtpDraft,
    StageStats,
    ack,
    merge,
    predicted_token,
    predicted_tokens,
    prefill_compute,
    prefill_edge,
)
from support.wire_strategies import stage_stats


EDGE_OF_STAGE_2 = prefill_edge(
    stage_index=2, write_us=12000, wait_us=3000, activation_bytes=1048576
)
EDGE_OF_STAGE_1 = prefill_edge(
    stage_index=1, write_us=4000, wait_us=40000, activation_bytes=524288
)


def test_there_are_27_statistics_as_on_the_wire() -> None:
    names = [field.name for field in attrs.fields(StageStats)]
    assert len(names) == len(STATS.unpack(bytes(STATS.size))) == 27
    assert names[0] == "kv_lookup_hits"
    assert names[26] == "prefill_compute_observation_count"


def test_the_slowest_edge_is_taken_whole_and_its_parts_apart() -> None:
    merged = merge(EDGE_OF_STAGE_2, EDGE_OF_STAGE_1)
    assert merged == StageStats(
        prefill_edge_write_us_max=12000,
        prefill_edge_wait_us_max=40000,
        prefill_edge_total_us_max=44000,
        prefill_edge_stage_index=1,
        prefill_edge_activation_bytes_max=524288,
        prefill_edge_observation_count=2,
    )
    assert merge(EDGE_OF_STAGE_1, EDGE_OF_STAGE_2) == merged


def test_the_slowest_compute_is_that_of_the_longest_chunk() -> None:
    samples = [
        prefill_compute(stage_index=2, compute_us=18000, token_count=128),
        prefill_compute(stage_index=1, compute_us=42000, token_count=128),
        prefill_compute(stage_index=3, compute_us=25000, token_count=64),
    ]
    golden = StageStats(
        prefill_compute_us_at_slowest_rate=42000,
        prefill_compute_stage_index=1,
        prefill_compute_token_count_at_slowest_rate=128,
        prefill_compute_observation_count=3,
    )
    assert reduce(merge, samples) == golden
    assert reduce(merge, reversed(samples)) == golden


def test_a_short_tail_never_wins_on_rate() -> None:
    merged = merge(
        prefill_compute(stage_index=1, compute_us=48000, token_count=128),
        prefill_compute(stage_index=1, compute_us=30000, token_count=9),
    )
    assert merged.prefill_compute_us_at_slowest_rate == 48000
    assert merged.prefill_compute_token_count_at_slowest_rate == 128
    assert merged.prefill_compute_observation_count == 2


def test_an_empty_compute_sample_is_replaced_and_never_replaces() -> None:
    sample = prefill_compute(stage_index=3, compute_us=0, token_count=0)
    assert merge(EDGE_OF_STAGE_1, sample).prefill_compute_stage_index == 3
    assert merge(sample, EDGE_OF_STAGE_1).prefill_compute_stage_index == 3


def test_counts_add_and_masks_unite_and_the_widest_window_stays() -> None:
    first = StageStats(*range(1, 28))
    second = StageStats(*range(101, 128))
    merged = attrs.astuple(merge(first, second))
    sums = [
        left + right for left, right in zip(range(1, 8), range(101, 108), strict=True)
    ]
    assert list(merged[:7]) == sums
    assert merged[7:9] == (8 | 108, 9 | 109)
    assert list(merged[9:16]) == [110 + 2 * n for n in range(5, 12)]
    assert merged[16] == 117
    assert merged[22] == 23 + 123
    assert merged[26] == 27 + 127


@settings(deadline=None, max_examples=20)
@given(stage_stats(), stage_stats())
def test_whatever_a_peer_sends_the_merge_can_be_sent_on(
    own: StageStats, downstream: StageStats
) -> None:
    assert len(STATS.pack(*attrs.astuple(merge(own, downstream)))) == STATS.size


def test_no_statistics_change_nothing() -> None:
    assert merge(EDGE_OF_STAGE_1, NO_STATS) == EDGE_OF_STAGE_1
    assert merge(NO_STATS, EDGE_OF_STAGE_1) == EDGE_OF_STAGE_1


def test_replies_name_their_first_token() -> None:
    draft = MtpDraft((7,), 12)
    assert ack().kind is ReplyKind.ACK
    one = predicted_token(5, EDGE_OF_STAGE_1, mtp_draft=draft)
    assert (one.kind, one.predicted, one.tokens) == (ReplyKind.PREDICTED_TOKEN, 5, (5,))
    assert (one.stats, one.mtp_draft) == (EDGE_OF_STAGE_1, draft)
    window = predicted_tokens((8, 9), window_id=3)
    assert (window.predicted, window.tokens, window.window_id) == (8, (8, 9), 3)
    assert predicted_tokens(()).predicted == 0
