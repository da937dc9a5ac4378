"""The tables of kinds say what the table of message kinds says (skippy-facts 1.3, 1.4)."""

from __future__ import annotations

from skippyd.core.wire.kinds import (
    RESERVED_REPLY_KINDS,
    MessageKind,
    Phase,
    ReplyKind,
    StateFlag,
    carries_activation,
    expected_state,
    has_authoritative_position,
    is_cache_query,
    phase_of,
    predicts,
    required_flags,
)


def numbers_where(holds: list[bool]) -> set[int]:
    return {kind.value for kind, held in zip(MessageKind, holds, strict=True) if held}


def test_the_removed_and_the_later_kinds_are_unknown() -> None:
    assert {kind.value for kind in MessageKind} == {*range(1, 10), *range(13, 23)}


def test_every_kind_has_its_phase() -> None:
    by_phase = {
        phase: {kind.value for kind in MessageKind if phase_of(kind) is phase}
        for phase in Phase
    }
    assert by_phase == {
        Phase.PREFILL: {1, 4, 7, 13, 14, 15, 16, 17, 18, 19, 22},
        Phase.DECODE: {2, 3, 8, 20, 21},
        Phase.DECODE_REPLAY: {5, 6},
        Phase.DECODE_LIGHT: {9},
    }


def test_only_final_chunks_and_light_context_demand_flags() -> None:
    demands = {k.value: required_flags(k).value for k in MessageKind}
    assert {k: flags for k, flags in demands.items() if flags} == {4: 1, 6: 1, 9: 2}


def test_predicted_kinds_are_the_six_that_sample() -> None:
    assert numbers_where([predicts(k) for k in MessageKind]) == {2, 4, 6, 8, 9, 21}


def test_authoritative_positions_are_those_of_decode_and_verify() -> None:
    holds = [has_authoritative_position(k) for k in MessageKind]
    assert numbers_where(holds) == {2, 8, 9, 21}


def test_work_and_cache_queries_share_no_kind() -> None:
    work = numbers_where([carries_activation(k) for k in MessageKind])
    queries = numbers_where([is_cache_query(k) for k in MessageKind])
    assert work == {1, 2, 4, 5, 6, 8, 9, 18, 21}
    assert queries == {15, 16, 17}


def test_some_control_kinds_come_with_any_state() -> None:
    holds = [expected_state(k) is None for k in MessageKind]
    assert numbers_where(holds) == {7, 13, 14, 19, 22}


def test_flags_and_reply_kinds_have_their_wire_numbers() -> None:
    assert [flag.value for flag in StateFlag] == [1, 2, 8, 16, 32, 64, 128, 256]
    assert {kind.value for kind in ReplyKind} == {1, 2, 3, 127}
    assert RESERVED_REPLY_KINDS.isdisjoint(kind.value for kind in ReplyKind)
