from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.core.topology.explain import (
    COUNTS_SHOWN,
    Attempt,
    Explanation,
    Verdict,
    explain_plan,
)
from skippyd.ids import NodeId
from skippyd.units import GIB
from support.topologies import (
    QWEN_480B,
    ask,
    base_model,
    equal_nodes,
    gib_nodes,
    planned,
)


if TYPE_CHECKING:
    from skippyd.core.topology.request import PlanRequest


def explained(request: PlanRequest) -> Explanation:
    return explain_plan(request, planned(request))


def shape(attempt: Attempt | None) -> tuple[int, int, str]:
    assert attempt is not None
    return attempt.context_length, len(attempt.stages), attempt.verdict.value


def test_the_next_larger_context_says_what_it_would_miss() -> None:
    larger = explained(ask(QWEN_480B, equal_nodes(4, 80))).larger_context

    assert shape(larger) == (131_072, 4, "does not fit")
    assert larger is not None
    assert larger.missing_bytes == 2 * (16 * 5_368_830_184 - 80 * GIB)
    assert larger.smallest_margin_bytes == 80 * GIB - 16 * 5_368_830_184
    assert larger.estimate_us is None


def test_fewer_nodes_say_what_they_would_miss() -> None:
    why = explained(ask(QWEN_480B, equal_nodes(5, 80)))

    assert why.larger_context is None
    assert shape(why.fewer_nodes) == (262_144, 4, "does not fit")
    assert why.fewer_nodes is not None
    assert why.fewer_nodes.missing_bytes == 2 * (16 * 5_646_047_464 - 80 * GIB)


@pytest.mark.parametrize(("count", "min_nodes"), [(1, 1), (3, 3)])
def test_fewer_nodes_than_allowed_are_not_tried(count: int, min_nodes: int) -> None:
    why = explained(ask(base_model(), equal_nodes(count, 80), min_nodes=min_nodes))
    assert why.fewer_nodes is None


def test_a_larger_context_may_fit_and_lose_by_its_estimate() -> None:
    nodes = tuple(attrs.evolve(n, latency_us=10_000) for n in equal_nodes(4, 23))
    why = explained(ask(base_model(262_144), nodes, min_nodes=2))

    assert shape(why.larger_context) == (131_072, 3, "fits")
    assert why.larger_context is not None
    assert why.larger_context.estimate_us == 30_000


def test_attempts_are_every_context_with_every_count() -> None:
    request = ask(base_model(262_144), equal_nodes(3, 30))
    attempts = explained(request).attempts

    assert [shape(attempt) for attempt in attempts] == [
        (262_144, 1, "does not fit"),
        (262_144, 2, "chosen"),
        (262_144, 3, "fits"),
        (131_072, 1, "does not fit"),
        (131_072, 2, "fits"),
        (131_072, 3, "fits"),
        (65_536, 1, "does not fit"),
        (65_536, 2, "fits"),
        (65_536, 3, "fits"),
    ]
    chosen = attempts[1]
    assert chosen.stages == planned(request).stages
    assert chosen.verdict is Verdict.CHOSEN
    assert chosen.missing_bytes == 0
    assert chosen.smallest_margin_bytes == planned(request).smallest_margin_bytes


def test_attempts_begin_at_min_nodes_and_end_at_the_layers() -> None:
    model = attrs.evolve(base_model(), layer_count=4)
    attempts = explained(ask(model, equal_nodes(6, 80), min_nodes=2)).attempts
    assert [len(attempt.stages) for attempt in attempts] == [2, 3, 4]


@pytest.mark.parametrize(
    ("nodes", "min_nodes", "expected"),
    [
        (30, 1, range(1, 13)),
        (12, 1, range(1, 13)),
        (11, 1, range(1, 12)),
        (30, 25, range(25, 31)),
        (30, 5, range(5, 17)),
    ],
)
def test_only_a_dozen_counts_are_looked_at(
    nodes: int, min_nodes: int, expected: range
) -> None:
    request = ask(base_model(), equal_nodes(nodes, 80), min_nodes=min_nodes)
    counts = [len(attempt.stages) for attempt in explained(request).attempts]

    assert counts == list(expected)
    assert len(counts) <= COUNTS_SHOWN


def test_a_long_chain_is_shown_with_the_counts_below_it() -> None:
    """Nodes of two layers each: 20 are needed."""
    request = ask(base_model(), equal_nodes(30, 2.5))
    counts = [len(attempt.stages) for attempt in explained(request).attempts]
    assert counts == list(range(10, 22))


def test_attempts_use_the_nearest_nodes_that_fit() -> None:
    nodes = tuple(
        attrs.evolve(node, latency_us=latency)
        for node, latency in zip(
            gib_nodes(a=50, b=46, c=23, d=23), (30, 20, 10, 5), strict=True
        )
    )
    attempts = explained(ask(base_model(), nodes)).attempts
    found = [
        ([s.node_id for s in a.stages], a.estimate_us, a.verdict.value)
        for a in attempts
    ]

    assert found == [
        (["b"], 20, "chosen"),
        (["c", "d"], 20, "fits"),
        (["b", "c", "d"], 60, "fits"),
        (["a", "b", "c", "d"], 120, "fits"),
    ]


def test_what_does_not_fit_has_no_estimate() -> None:
    nodes = tuple(attrs.evolve(n, latency_us=10) for n in equal_nodes(3, 23))
    first, second, third = explained(ask(base_model(), nodes)).attempts

    assert (first.estimate_us, first.verdict) == (None, Verdict.DOES_NOT_FIT)
    assert second.estimate_us == 20
    assert third.estimate_us == 30


def test_without_latencies_there_are_no_estimates() -> None:
    attempts = explained(ask(base_model(), equal_nodes(3, 23))).attempts
    assert {attempt.estimate_us for attempt in attempts} == {None}


def test_the_next_larger_context_may_be_the_only_one() -> None:
    why = explained(ask(base_model(262_144), equal_nodes(1, 48.5)))
    assert shape(why.larger_context) == (262_144, 1, "does not fit")


def test_every_attempt_takes_the_nearest_node_that_holds_it() -> None:
    nodes = tuple(
        attrs.evolve(node, latency_us=latency)
        for node, latency in zip(gib_nodes(far=90, near=80), (50, 1), strict=True)
    )
    attempts = explained(ask(base_model(262_144), nodes)).attempts
    alone = [attempt for attempt in attempts if len(attempt.stages) == 1]

    assert [attempt.context_length for attempt in alone] == [262_144, 131_072, 65_536]
    assert {attempt.stages[0].node_id for attempt in alone} == {"near"}
    assert {attempt.estimate_us for attempt in alone} == {1}


def test_an_attempt_that_fills_a_node_to_the_last_byte_fits() -> None:
    """One node holds both layers; a second one would hold exactly one."""
    model = attrs.evolve(base_model(), layer_count=2, weight_bytes=2 * GIB)
    (large,) = gib_nodes(a=40)
    exact = attrs.evolve(large, node_id=NodeId("b"), vram_bytes=GIB + 32_768 * 65_536)
    chosen, beside = explained(ask(model, (large, exact))).attempts

    assert shape(chosen) == (65_536, 1, "chosen")
    assert shape(beside) == (65_536, 2, "fits")
    assert beside.smallest_margin_bytes == 0
