from __future__ import annotations

from random import Random  # noqa: TID251 - seeded here, the cases are fixed

import pytest

from skippyd.core.topology.balance import balanced_cuts
from skippyd.core.topology.fitting import prefix_bytes
from skippyd.core.topology.plan import NoValidTopology, TopologyPlan
from skippyd.core.topology.planner import plan_topology
from skippyd.core.topology.request import ModelShape, Node, PlanRequest
from skippyd.ids import NodeId
from support.brute_planner import brute_margins, brute_plan


UNIT = 65_536
"""One token of KV at 64k takes one unit a layer: sizes of the order of a context."""


def random_request(rng: Random) -> PlanRequest:
    """A small question with many ties: sizes are few and round, or ragged."""
    layers = rng.randint(1, 6)
    grain = rng.choice((UNIT, UNIT, UNIT // 8, 7))
    weights = tuple(rng.randint(1, 4) * grain for _ in range(layers))
    model = ModelShape(
        native_context=rng.choice((40_000, 65_536, 100_000, 262_144)),
        layer_count=layers,
        weight_bytes=sum(weights) + rng.randint(0, 3),
        kv_bytes_per_token=rng.randint(1, 2 * layers),
        layer_weight_bytes=rng.choice(((), weights, weights[1:])),
    )
    latencies = rng.choice(((None,), (0, 5, 10), (None, 3, 6, 7), (10,), (0,)))
    room = rng.choice((6, 12, 24))
    nodes = tuple(
        Node(
            node_id=NodeId(f"n{index}"),
            vram_bytes=rng.randint(1, room) * UNIT + rng.choice((0, 0, 1)),
            max_vram_bytes=rng.choice((None, None, 8 * UNIT)),
            headroom_bytes=rng.choice((0, 0, UNIT)),
            latency_us=rng.choice(latencies),
        )
        for index in rng.sample(range(20), rng.randint(1, 5))
    )
    return PlanRequest(
        model=model,
        nodes=nodes,
        min_nodes=rng.choice((0, 1, 1, 2, 3)),
        target_tpot_us=rng.choice((None, 10, 20)),
    )


def check(request: PlanRequest) -> bool:
    expected, got = brute_plan(request), plan_topology(request)

    if expected is None:
        assert isinstance(got, NoValidTopology)
        return False
    assert isinstance(got, TopologyPlan), request
    ranges = tuple((s.node_id, s.layer_start, s.layer_end) for s in got.stages)
    assert expected.ranges == ranges, request
    assert expected.context_length == got.context_length
    assert expected.estimate_us == got.estimate_us
    assert expected.target_met == got.target_met
    return True


@pytest.mark.parametrize("seed", range(4))
def test_plans_equal_brute_force_in_a_few_hundred_cases(seed: int) -> None:
    rng = Random(seed)
    planned = [check(random_request(rng)) for _ in range(60)]
    assert any(planned)
    assert not all(planned)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 108))
def test_plans_equal_brute_force_in_thousands_of_cases(seed: int) -> None:
    rng = Random(seed)
    planned = sum(check(random_request(rng)) for _ in range(1_000))
    assert planned > 400


def random_block(rng: Random) -> tuple[list[int], list[int]]:
    """Nodes and more layers than nodes; often with equal sizes."""
    count = rng.randint(1, 5)
    layers = [rng.randint(1, rng.choice((1, 2, 9))) for _ in range(count)]
    layers += [rng.randint(1, rng.choice((1, 2, 9))) for _ in range(rng.randint(0, 6))]
    mean = sum(layers) // count
    usable = sorted((mean + rng.randint(0, 4) for _ in range(count)), reverse=True)
    return usable, layers


@pytest.mark.parametrize("seed", range(4))
def test_ranges_are_the_fairest_even_when_memory_is_short(seed: int) -> None:
    rng = Random(seed)
    for _ in range(200):
        usable, layers = random_block(rng)

        got = balanced_cuts(usable, prefix_bytes(layers, 0))

        assert brute_margins(usable, layers) == got, (usable, layers)
