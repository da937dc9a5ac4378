from __future__ import annotations

import attrs
import pytest

from skippyd.core.topology.stages import assign, finish
from skippyd.units import GIB
from support.topologies import ask, base_model, gib_nodes, uneven_model


def test_stages_carry_the_bytes_of_their_own_layers() -> None:
    nodes = gib_nodes(a=10, b=4)
    first, second = assign(nodes, (0, 2, 3), uneven_model(1, 2, 4), 65_536)

    assert (first.stage_index, first.node_id) == (0, "a")
    assert (first.layer_start, first.layer_end) == (0, 2)
    assert first.parameter_bytes == 3 * GIB
    assert first.kv_bytes == 2 * 65_536
    assert first.remaining_bytes == 7 * GIB - 2 * 65_536
    assert (second.stage_index, second.node_id) == (1, "b")
    assert (second.layer_start, second.layer_end) == (2, 3)
    assert second.parameter_bytes == 4 * GIB
    assert second.kv_bytes == 65_536
    assert second.remaining_bytes == -65_536


@pytest.mark.parametrize(
    ("latencies", "target", "estimate", "met", "assumed"),
    [
        ((None, None, None), 10, None, None, ()),
        ((7, 5, 99), None, 14, None, ()),
        ((7, 5, 99), 14, 14, True, ()),
        ((7, 5, 99), 13, 14, False, ()),
        ((None, 5, 99), None, 198, None, ("b",)),
        ((None, None, 99), 200, 198, True, ("a", "b")),
    ],
)
def test_the_estimate_is_stages_times_the_largest_latency(
    latencies: tuple[int | None, ...],
    target: int | None,
    estimate: int | None,
    met: bool | None,
    assumed: tuple[str, ...],
) -> None:
    """Of nodes b, a and c the first two are used."""
    nodes = tuple(
        attrs.evolve(node, latency_us=latency)
        for node, latency in zip(gib_nodes(b=30, a=30, c=30), latencies, strict=True)
    )
    stages = assign(nodes[:2], (0, 20, 40), base_model(), 65_536)

    plan = finish(ask(base_model(), nodes, target_us=target, lanes=2), 65_536, stages)

    assert plan.context_length == 65_536
    assert plan.lanes == 2
    assert plan.stages == stages
    assert plan.estimate_us == estimate
    assert plan.target_met is met
    assert plan.assumed_latency == assumed
