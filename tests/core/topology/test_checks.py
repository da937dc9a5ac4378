from __future__ import annotations

import attrs
import pytest

from skippyd.core.topology.checks import check_request
from skippyd.core.topology.plan import (
    ContextBelowMinimum,
    ContextExceedsNative,
    MissingKvBytesPerToken,
    MissingLayers,
    MissingModelWeights,
    MissingNativeContext,
    MissingNodes,
    ParallelLanesExceedSequenceCapacity,
    RequestRefusal,
    ZeroParallelLanes,
)
from skippyd.core.topology.planner import plan_topology
from skippyd.core.topology.request import ModelShape
from support.topologies import ask, base_model, equal_nodes


def with_facts(**facts: int) -> ModelShape:
    model = base_model()
    known = {
        field.name: getattr(model, field.name) for field in attrs.fields(ModelShape)
    }
    return ModelShape(**(known | facts))


NODES = equal_nodes(2, 80)
NOTHING_KNOWN = {
    "native_context": MissingNativeContext(),
    "layer_count": MissingLayers(),
    "weight_bytes": MissingModelWeights(),
    "kv_bytes_per_token": MissingKvBytesPerToken(),
}


@pytest.mark.parametrize("name", NOTHING_KNOWN)
@pytest.mark.parametrize("value", [0, -1])
def test_a_missing_fact_is_refused_by_name(name: str, value: int) -> None:
    model = with_facts(**{name: value})
    assert check_request(ask(model, NODES)) == NOTHING_KNOWN[name]


@pytest.mark.parametrize("name", NOTHING_KNOWN)
def test_one_is_a_fact(name: str) -> None:
    model = with_facts(**{name: 1})
    assert check_request(ask(model, NODES)) is None


def test_missing_facts_are_refused_in_the_documented_order() -> None:
    facts = dict.fromkeys(NOTHING_KNOWN, 0)
    for name, expected in NOTHING_KNOWN.items():
        assert check_request(ask(with_facts(**facts), (), lanes=0)) == expected
        facts[name] = 1

    model = with_facts(**facts)
    assert check_request(ask(model, (), lanes=0)) == MissingNodes()


@pytest.mark.parametrize(
    ("native", "context", "expected"),
    [  # skippy-facts 4.5
        (262_144, 32_768, ContextBelowMinimum(32_768, 65_536)),
        (65_536, 131_072, ContextExceedsNative(131_072, 65_536)),
        (262_144, 65_535, ContextBelowMinimum(65_535, 65_536)),
        (262_144, 65_536, None),
        (262_144, 262_144, None),
        (262_144, 262_145, ContextExceedsNative(262_145, 262_144)),
        (8192, 8191, ContextBelowMinimum(8191, 8192)),
        (8192, 8192, None),
        (8192, 0, ContextBelowMinimum(0, 8192)),
    ],
)
def test_an_override_stays_between_floor_and_native(
    native: int, context: int, expected: RequestRefusal | None
) -> None:
    assert check_request(ask(base_model(native), NODES, context=context)) == expected


@pytest.mark.parametrize(
    ("lanes", "expected"),
    [
        (-1, ZeroParallelLanes()),
        (0, ZeroParallelLanes()),
        (1, None),
        (256, None),
        (257, ParallelLanesExceedSequenceCapacity(257, 256)),
    ],
)
def test_lanes_are_at_least_one_and_no_more_than_sequences(
    lanes: int, expected: RequestRefusal | None
) -> None:
    assert check_request(ask(base_model(), NODES, lanes=lanes)) == expected


def test_the_planner_returns_what_the_checks_refuse() -> None:
    assert plan_topology(ask(base_model(), NODES, lanes=0)) == ZeroParallelLanes()
