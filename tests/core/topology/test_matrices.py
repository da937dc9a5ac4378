from __future__ import annotations

import attrs
import pytest

from skippyd.core.topology.matrices import (
    OutsideTensors,
    TightTensor,
    add_matrices,
    counted_request,
    plan_with_matrices,
)
from skippyd.core.topology.plan import (
    NoValidTopology,
    TensorDoesNotFit,
    TopologyPlan,
)
from skippyd.core.topology.request import ModelShape, Node, PlanRequest
from skippyd.ids import NodeId
from support.topologies import ask, planned, ranges


KV = 65_536
"""KV bytes of a layer at 64k with one byte a token and layer."""


def model(*weights: int) -> ModelShape:
    return ModelShape(
        native_context=65_536,
        layer_count=len(weights),
        weight_bytes=sum(weights),
        kv_bytes_per_token=len(weights),
        layer_weight_bytes=weights,
    )


def question(
    shape: ModelShape, sizes: dict[str, int], *, min_nodes: int = 1
) -> PlanRequest:
    nodes = tuple(
        Node(node_id=NodeId(name), vram_bytes=size) for name, size in sizes.items()
    )
    return ask(shape, nodes, min_nodes=min_nodes)


def tied(size: int) -> OutsideTensors:
    matrix = ("token_embd.weight", size)
    return OutsideTensors(
        whole=(matrix, ("output_norm.weight", 4)),
        first=(matrix, ("output_norm.weight", 4)),
        middle=(("token_embd.weight", 8), ("output_norm.weight", 4)),
        last=(matrix, ("output_norm.weight", 4)),
    )


def untied(embedding: int, output: int) -> OutsideTensors:
    first, last = ("token_embd.weight", embedding), ("output.weight", output)
    return OutsideTensors(whole=(first, last), first=(first,), middle=(), last=(last,))


@pytest.mark.parametrize(
    ("index", "count", "expected"),
    [(0, 1, "w"), (0, 2, "f"), (1, 2, "l"), (0, 3, "f"), (1, 3, "m"), (2, 3, "l")],
)
def test_a_stage_holds_what_its_place_demands(
    index: int, count: int, expected: str
) -> None:
    outside = OutsideTensors(
        whole=(("w", 1),), first=(("f", 1),), middle=(("m", 1),), last=(("l", 1),)
    )
    assert outside.on_stage(index, count) == ((expected, 1),)


def test_a_plan_that_loads_stands_and_carries_the_real_bytes() -> None:
    request = question(model(100, 100, 100), dict.fromkeys("abc", 90_000), min_nodes=3)
    answer = plan_with_matrices(request, tied(1000))

    assert ranges(answer) == ranges(planned(request))
    assert isinstance(answer, TopologyPlan)
    assert [s.parameter_bytes for s in answer.stages] == [1104, 112, 1104]
    assert [s.kv_bytes for s in answer.stages] == [KV] * 3
    assert [s.usable_bytes for s in answer.stages] == [90_000] * 3


def test_a_single_stage_holds_a_tied_matrix_once() -> None:
    request = question(model(100, 100), {"a": 2 * KV + 200 + 1004})
    answer = plan_with_matrices(request, tied(1000))

    assert isinstance(answer, TopologyPlan)
    assert answer.stages[0].parameter_bytes == 1204
    assert answer.stages[0].remaining_bytes == 0


def test_a_matrix_moves_layers_away_from_its_stage() -> None:
    """By the formula 2 + 2; with the embedding the first node holds one layer."""
    room = 3 * (KV + 100)
    request = question(model(100, 100, 100, 100), {"a": room, "b": room}, min_nodes=2)
    answer = plan_with_matrices(request, untied(KV + 200, 0))

    assert ranges(planned(request)) == [("a", 0, 2), ("b", 2, 4)]
    assert ranges(answer) == [("a", 0, 1), ("b", 1, 4)]
    assert isinstance(answer, TopologyPlan)
    assert answer.stages[0].parameter_bytes == 100 + KV + 200
    assert answer.stages[1].remaining_bytes == 0


def test_a_matrix_may_ask_for_one_more_node() -> None:
    room = 2 * (KV + 100)
    sizes = {"a": room, "b": room, "c": room}
    request = question(model(100, 100, 100, 100), sizes)
    answer = plan_with_matrices(request, untied(KV, KV))

    assert len(planned(request).stages) == 2
    assert ranges(answer) == [("a", 0, 1), ("b", 1, 3), ("c", 3, 4)]


@pytest.mark.parametrize(
    ("outside", "tensor", "size"),
    [
        (untied(5 * KV, 0), "token_embd.weight", 5 * KV),
        (untied(0, 5 * KV), "output.weight", 5 * KV),
        (tied(5 * KV), "token_embd.weight", 5 * KV),
    ],
)
def test_a_matrix_that_fits_nowhere_is_refused_by_name(
    outside: OutsideTensors, tensor: str, size: int
) -> None:
    room = 2 * (KV + 100)
    sizes = {"a": room, "b": room}
    request = question(model(100, 100, 100), sizes, min_nodes=2)
    answer = plan_with_matrices(request, outside)

    assert isinstance(answer, TensorDoesNotFit)
    assert (answer.tensor, answer.tensor_bytes) == (tensor, size)
    assert answer.context_length == 65_536
    assert answer.minimum_context == 65_536
    assert answer.missing_bytes == -answer.stage.remaining_bytes > 0
    assert answer.stage.node_id == ("b" if tensor == "output.weight" else "a")


def test_the_refusal_names_what_would_fit_with_the_matrices_counted() -> None:
    request = question(model(100, 100), {"a": 2 * (KV + 100)})
    answer = plan_with_matrices(request, untied(KV, 0))

    assert isinstance(answer, TensorDoesNotFit)
    assert answer.stage.node_id == "a"
    assert answer.missing_bytes == KV
    assert answer.one_more_node_bytes == KV + 100
    assert answer.largest_context == 32_768


def test_the_larger_of_two_matrices_on_one_stage_is_named() -> None:
    for outside, name in (
        (untied(5 * KV, 4 * KV), "token_embd.weight"),
        (untied(4 * KV, 5 * KV), "output.weight"),
    ):
        plan = planned(question(model(1), {"a": KV + 1}))
        tight = add_matrices(plan, outside)

        assert isinstance(tight, TightTensor)
        assert tight.tensor == name
        assert tight.stage.remaining_bytes == -9 * KV


def test_a_question_without_a_plan_is_refused_by_the_formula() -> None:
    answer = plan_with_matrices(question(model(100), {"a": 1}), tied(1))
    assert isinstance(answer, NoValidTopology)


def test_the_ends_are_counted_on_the_end_layers() -> None:
    request = question(model(10, 20, 30), {"a": 1})

    assert counted_request(request, tied(100)).model.weights() == (126, 32, 146)
    assert counted_request(request, untied(7, 9)).model.weights() == (17, 20, 39)


def test_one_layer_carries_both_ends_or_the_whole() -> None:
    request = question(model(10), {"a": 1})
    bulky = attrs.evolve(untied(7, 9), whole=(("token_embd.weight", 50),))

    assert counted_request(request, untied(7, 9)).model.weights() == (26,)
    assert counted_request(request, bulky).model.weights() == (60,)


def test_a_lone_node_falls_back_to_the_context_that_holds_a_tied_matrix_once() -> None:
    """Twice it would not fit at any context on offer, once it does at 64k."""
    shape = attrs.evolve(model(100, 100), native_context=262_144)
    room = 2 * (131_072 + 100) + 4
    request = question(shape, {"a": room})
    answer = plan_with_matrices(request, tied(131_072))

    assert planned(request).context_length == 131_072
    assert isinstance(answer, TopologyPlan)
    assert answer.context_length == 65_536
    assert ranges(answer) == [("a", 0, 2)]


def test_of_two_ways_to_load_the_larger_context_wins() -> None:
    """With the matrix counted twice 64k fits, counted once 128k does."""
    shape = attrs.evolve(model(100, 100), native_context=262_144)
    request = question(shape, {"a": 2 * (262_144 + 100), "b": 250_000})
    twice = planned(counted_request(request, tied(150_000)))
    answer = plan_with_matrices(request, tied(150_000))

    assert planned(request).context_length == 262_144
    assert twice.context_length == 65_536
    assert isinstance(answer, TopologyPlan)
    assert answer.context_length == 131_072
    assert ranges(answer) == [("a", 0, 2)]
