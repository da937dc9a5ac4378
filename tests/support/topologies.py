"""Models and nodes that the planner's tests speak about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.topology.plan import NoValidTopology, TopologyPlan
from skippyd.core.topology.planner import plan_topology
from skippyd.core.topology.request import ModelShape, Node, PlanRequest
from skippyd.ids import NodeId
from skippyd.units import GIB


if TYPE_CHECKING:
    from skippyd.core.topology.plan import PlanRefusal


def base_model(native_context: int = 65_536) -> ModelShape:
    """40 layers of 1 GiB (skippy-facts 4.4, "Base")."""
    return ModelShape(
        native_context=native_context,
        layer_count=40,
        weight_bytes=40 * GIB,
        kv_bytes_per_token=65_536,
    )


QWEN_480B = ModelShape(
    native_context=262_144,
    layer_count=62,
    weight_bytes=315_680_000_000,
    kv_bytes_per_token=131_072,
)


def uneven_model(*weights_gib: float) -> ModelShape:
    """Layers of these sizes with a KV cache that hardly counts."""
    weights = tuple(int(size * GIB) for size in weights_gib)
    return ModelShape(
        native_context=65_536,
        layer_count=len(weights),
        weight_bytes=sum(weights),
        kv_bytes_per_token=1,
        layer_weight_bytes=weights,
    )


def gib_nodes(**sizes: float) -> tuple[Node, ...]:
    """Nodes by name with whole sizes in GiB."""
    return tuple(
        Node(node_id=NodeId(name), vram_bytes=int(size * GIB))
        for name, size in sizes.items()
    )


def equal_nodes(count: int, gib: float) -> tuple[Node, ...]:
    """n0, n1 and so on, all of one size."""
    return gib_nodes(**{f"n{index}": gib for index in range(count)})


def ask(
    model: ModelShape,
    nodes: tuple[Node, ...],
    *,
    min_nodes: int = 1,
    context: int | None = None,
    lanes: int | None = None,
    target_us: int | None = None,
) -> PlanRequest:
    """A question in one line."""
    return PlanRequest(
        model=model,
        nodes=nodes,
        min_nodes=min_nodes,
        context_override=context,
        lanes_override=lanes,
        target_tpot_us=target_us,
    )


def planned(request: PlanRequest) -> TopologyPlan:
    """The plan of a question that has one."""
    answer = plan_topology(request)
    assert isinstance(answer, TopologyPlan), answer
    return answer


def unplannable(request: PlanRequest) -> NoValidTopology:
    """The refusal of a question that has no plan."""
    answer = plan_topology(request)
    assert isinstance(answer, NoValidTopology), answer
    return answer


def ranges(answer: TopologyPlan | PlanRefusal) -> list[tuple[str, int, int]]:
    """Node and half-open layer range of each stage."""
    assert isinstance(answer, TopologyPlan), answer
    return [(s.node_id, s.layer_start, s.layer_end) for s in answer.stages]
