from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyctl.memory_bar import (
    MemoryBar,
    full_length_bytes,
    memory_bar,
    percent_used,
)
from skippyd.core.topology.plan import StageAssignment
from skippyd.ids import NodeId


def stage(weights: int, kv: int, remaining: int) -> StageAssignment:
    return StageAssignment(
        stage_index=0,
        node_id=NodeId("a"),
        layer_start=0,
        layer_end=1,
        parameter_bytes=weights,
        kv_bytes=kv,
        remaining_bytes=remaining,
    )


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (stage(60, 20, 20), MemoryBar(weights=6, kv=2, free=2, missing=0)),
        (stage(60, 40, 0), MemoryBar(weights=6, kv=4, free=0, missing=0)),
        (stage(60, 40, -20), MemoryBar(weights=6, kv=2, free=0, missing=2)),
        (stage(90, 10, -50), MemoryBar(weights=5, kv=0, free=0, missing=5)),
        (stage(30, 10, 10), MemoryBar(weights=3, kv=1, free=1, missing=0)),
        (stage(1, 1, 98), MemoryBar(weights=0, kv=0, free=10, missing=0)),
    ],
)
def test_a_bar_shows_what_the_bytes_are(
    part: StageAssignment, expected: MemoryBar
) -> None:
    assert memory_bar(part, length=10, largest_bytes=100) == expected


@given(
    weights=st.integers(1, 10**12),
    kv=st.integers(1, 10**12),
    spare=st.integers(-(10**12), 10**12),
    length=st.integers(1, 200),
)
def test_a_bar_is_never_longer_than_it_may_be(
    weights: int, kv: int, spare: int, length: int
) -> None:
    part = stage(weights, kv, max(spare, -(weights + kv)))
    largest = full_length_bytes((part,))
    bar = memory_bar(part, length=length, largest_bytes=largest)

    assert bar.weights + bar.kv + bar.free + bar.missing == length
    assert min(bar.weights, bar.kv, bar.free, bar.missing) >= 0


def test_the_longest_bar_is_the_largest_node_or_need() -> None:
    assert full_length_bytes((stage(1, 1, 8), stage(5, 5, -3))) == 10
    assert full_length_bytes((stage(1, 1, 18), stage(5, 5, -3))) == 20


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (stage(50, 25, 25), 75),
        (stage(50, 25, 24), 76),
        (stage(60, 40, 0), 100),
        (stage(60, 41, -1), 101),
        (stage(1, 0, -1), 100),
    ],
)
def test_the_share_used_is_rounded_up(part: StageAssignment, expected: int) -> None:
    assert percent_used(part) == expected
