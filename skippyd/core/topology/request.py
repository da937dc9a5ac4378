"""What the planner is asked: a model's shape, the nodes' memory, the wishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.units import ceil_div


if TYPE_CHECKING:
    from skippyd.ids import NodeId


CONTEXT_FLOOR = 65_536
"""Smallest context a split is worth starting for (seed, "Topology Planning")."""

DEFAULT_LANES = 4
"""llama-server's default; lanes share one KV cache and cost no memory (seed)."""

LANES_MAX = 256
"""Sequence ids one llama.cpp context can tell apart."""

CONTEXT_STEPS = (131_072, 65_536)
"""Contexts tried below the native one; smaller powers are below every floor."""


@attrs.frozen(kw_only=True)
class Node:
    """One machine's memory and its distance; ids are unique within a request.

    Args:
        node_id: Breaks ties between nodes of the same usable memory.
        vram_bytes: What was detected.
        max_vram_bytes: The operator's cap, None for none.
        headroom_bytes: Kept free whatever the plan says.
        latency_us: Stage-transfer latency in microseconds, None when not measured.
    """

    node_id: NodeId
    vram_bytes: int
    max_vram_bytes: int | None = None
    headroom_bytes: int = 0
    latency_us: int | None = None

    @property
    def usable_bytes(self) -> int:
        """Detected memory under the cap and above the headroom, never negative."""
        capped = self.vram_bytes
        if self.max_vram_bytes is not None:
            capped = min(capped, self.max_vram_bytes)
        return max(0, capped - self.headroom_bytes)


@attrs.frozen(kw_only=True)
class ModelShape:
    """The facts of a model that decide how much memory a layer takes.

    Args:
        native_context: Tokens the model was trained for.
        layer_count: Layers that can be cut apart.
        weight_bytes: All weights together.
        kv_bytes_per_token: KV cache of one token over all layers.
        layer_weight_bytes: Weights of each layer; used only when its length is
            `layer_count`, else every layer weighs the same.
    """

    native_context: int
    layer_count: int
    weight_bytes: int
    kv_bytes_per_token: int
    layer_weight_bytes: tuple[int, ...] = ()

    def weights(self) -> tuple[int, ...]:
        """Weight bytes of each layer, rounded up when they are an average."""
        if len(self.layer_weight_bytes) == self.layer_count:
            return self.layer_weight_bytes
        return (ceil_div(self.weight_bytes, self.layer_count),) * self.layer_count

    def kv_layer_bytes(self, context_length: int) -> int:
        """KV cache one layer needs for `context_length` tokens."""
        return ceil_div(self.kv_bytes_per_token, self.layer_count) * context_length

    @property
    def context_floor(self) -> int:
        """64k, or the native context of a model that has less."""
        return min(self.native_context, CONTEXT_FLOOR)


@attrs.frozen(kw_only=True)
class PlanRequest:
    """One question to the planner; None means "the planner chooses"."""

    model: ModelShape
    nodes: tuple[Node, ...]
    min_nodes: int = 1
    context_override: int | None = None
    lanes_override: int | None = None
    target_tpot_us: int | None = None

    @property
    def lanes(self) -> int:
        """Parallel lanes; they cost no memory in the seed's formula."""
        return DEFAULT_LANES if self.lanes_override is None else self.lanes_override

    @property
    def stages_min(self) -> int:
        """Fewest stages the operator accepts."""
        return max(1, self.min_nodes)

    def contexts(self) -> tuple[int, ...]:
        """Contexts to try, largest first."""
        if self.context_override is not None:
            return (self.context_override,)
        native, floor = self.model.native_context, self.model.context_floor
        steps = (step for step in CONTEXT_STEPS if floor <= step < native)
        return (native, *steps)
