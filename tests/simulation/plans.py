"""The chains that the simulated coordinators plan: their own node first."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from skippyd.core.coordinator.claim import ClaimKey
from skippyd.core.coordinator.run import CampaignPlan, PlannedStage
from skippyd.ids import ModelId, NodeId, StageId


if TYPE_CHECKING:
    from simulation.node import Node
    from simulation.world import World


MODEL_KEY = ClaimKey(
    model_id=ModelId("m"),
    package_ref="local-gguf://sha256/aa",
    manifest_sha256="aa",
)

LOCAL_RUN = "local-"
"""Runs that are loaded over an admin socket without a coordinator are called so."""

LAYERS_PER_STAGE = 8

MIN_STAGES = 2


def draw_plan(
    world: World, home: Node, excluded: tuple[str, ...]
) -> CampaignPlan | None:
    """Take the planned number of nodes, fewer when some are excluded, at least two."""
    if home.node_id in excluded:
        return None
    count = len(world.nodes)
    others = [world.nodes[(home.index + step) % count] for step in range(1, count)]
    usable = [home, *(node for node in others if node.node_id not in excluded)]
    chosen = usable[: world.schedule_.stage_count]
    if len(chosen) < MIN_STAGES:
        return None
    may_replace = world.rng.random() < world.schedule_.replacing
    return _plan(tuple(node.node_id for node in chosen), may_replace)


@cache
def _plan(node_ids: tuple[NodeId, ...], may_replace: bool) -> CampaignPlan:
    names = "-".join(node_ids)
    return CampaignPlan(
        key=MODEL_KEY,
        stages=tuple(_stage(index, node_id) for index, node_id in enumerate(node_ids)),
        participant_set_hash=f"participants-{names}",
        topology_hash=f"topology-{names}",
        prepare_timeout_ms=30_000,
        load_timeout_ms=60_000,
        may_replace=may_replace,
    )


def _stage(index: int, node_id: NodeId) -> PlannedStage:
    return PlannedStage(
        node_id=node_id,
        stage_id=StageId(f"stage-{index}"),
        stage_index=index,
        layer_start=index * LAYERS_PER_STAGE,
        layer_end=(index + 1) * LAYERS_PER_STAGE,
        admission=f"admission-{index}",
    )
