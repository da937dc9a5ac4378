from __future__ import annotations

import pytest

from skippyd.core.topology.request import ModelShape, Node, PlanRequest
from skippyd.ids import NodeId
from skippyd.units import GIB
from support.topologies import QWEN_480B, ask, base_model, equal_nodes


@pytest.mark.parametrize(
    ("model", "context", "expected"),
    [  # skippy-facts 4.4, "seed formula"
        (base_model(), 32_768, 1_127_448_576),
        (base_model(), 65_536, 1_181_155_328),
        (base_model(), 131_072, 1_288_568_832),
        (base_model(), 262_144, 1_503_395_840),
        (QWEN_480B, 65_536, 5_230_221_544),
        (QWEN_480B, 131_072, 5_368_830_184),
        (QWEN_480B, 262_144, 5_646_047_464),
    ],
)
def test_a_layer_takes_the_published_bytes(
    model: ModelShape, context: int, expected: int
) -> None:
    assert expected == model.weights()[0] + model.kv_layer_bytes(context)
    assert len(model.weights()) == model.layer_count


def test_the_parts_of_a_layer_are_rounded_up_each() -> None:
    """skippy-facts 4.4: the averages in parentheses."""
    assert base_model().weights()[0] == 1_073_741_824
    assert base_model().kv_layer_bytes(1) == 1639
    assert QWEN_480B.weights()[0] == 5_091_612_904
    assert QWEN_480B.kv_layer_bytes(1) == 2115


@pytest.mark.parametrize(
    ("weights", "expected"),
    [((1, 2, 3), (1, 2, 3)), ((1, 2), (4, 4, 4)), ((1, 2, 3, 4), (4, 4, 4))],
)
def test_layer_weights_count_only_when_there_is_one_for_each_layer(
    weights: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    model = ModelShape(
        native_context=1,
        layer_count=3,
        weight_bytes=10,
        kv_bytes_per_token=1,
        layer_weight_bytes=weights,
    )
    assert expected == model.weights()


@pytest.mark.parametrize(
    ("cap", "headroom", "expected"),
    [
        (None, 0, 80),
        (None, 8, 72),
        (24, 0, 24),
        (24, 8, 16),  # skippy-facts 4.5: the capped node
        (100, 8, 72),
        (24, 24, 0),
        (24, 30, 0),
    ],
)
def test_usable_memory_is_capped_then_less_headroom(
    cap: int | None, headroom: int, expected: int
) -> None:
    node = Node(
        node_id=NodeId("a"),
        vram_bytes=80 * GIB,
        max_vram_bytes=None if cap is None else cap * GIB,
        headroom_bytes=headroom * GIB,
    )
    assert expected * GIB == node.usable_bytes


def test_headroom_is_nothing_unless_given() -> None:
    assert Node(node_id=NodeId("a"), vram_bytes=5).usable_bytes == 5


@pytest.mark.parametrize(
    ("native", "floor", "expected"),
    [
        (262_144, 65_536, (262_144, 131_072, 65_536)),
        (131_072, 65_536, (131_072, 65_536)),
        (65_536, 65_536, (65_536,)),
        (40_960, 40_960, (40_960,)),
        (100_000, 65_536, (100_000, 65_536)),
        (65_537, 65_536, (65_537, 65_536)),
        (1_000_000, 65_536, (1_000_000, 131_072, 65_536)),
        (256, 256, (256,)),
    ],
)
def test_contexts_are_native_then_the_powers_down_to_the_floor(
    native: int, floor: int, expected: tuple[int, ...]
) -> None:
    request = ask(base_model(native), equal_nodes(1, 80))
    assert floor == request.model.context_floor
    assert expected == request.contexts()


def test_an_override_is_the_only_context() -> None:
    request = ask(base_model(262_144), equal_nodes(1, 80), context=70_000)
    assert request.contexts() == (70_000,)


@pytest.mark.parametrize(("asked", "expected"), [(None, 4), (1, 1), (0, 0), (80, 80)])
def test_lanes_are_four_unless_overridden(asked: int | None, expected: int) -> None:
    assert ask(base_model(), equal_nodes(1, 80), lanes=asked).lanes == expected


@pytest.mark.parametrize(("asked", "expected"), [(0, 1), (1, 1), (3, 3)])
def test_a_plan_has_at_least_one_stage(asked: int, expected: int) -> None:
    request = ask(base_model(), equal_nodes(1, 80), min_nodes=asked)
    assert expected == request.stages_min


def test_one_stage_is_enough_unless_more_are_asked_for() -> None:
    assert PlanRequest(model=base_model(), nodes=()).min_nodes == 1
