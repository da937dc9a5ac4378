"""A planner for nodes in memory, where every model fits everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.planning import PlannedRun, RunShape
from skippyd.coordination.planning_nodes import candidate_nodes, failover_order
from skippyd.coordination.ports import StageEndpoint, StageRunSettings
from skippyd.errors import RefusedError
from support.cluster import plan_over


if TYPE_CHECKING:
    from skippyd.coordination.rollout_wishes import Wish
    from skippyd.ids import NodeId
    from support.async_cluster import AsyncCluster, AsyncNode


@attrs.frozen
class AsyncPlans:
    """A planner for nodes that all fit: own node first, then the others by id."""

    node: AsyncNode
    cluster: AsyncCluster

    async def plan(
        self,
        wish: Wish,
        *,
        excluded: tuple[NodeId, ...] = (),
        pinned: RunShape | None = None,
    ) -> PlannedRun:
        """See `Plans`."""
        await trio.lowlevel.checkpoint()
        reports = self.node.reports()
        chosen, _ = candidate_nodes(
            reports, self.node.own_id, wish, excluded=excluded, peers=self.node.peers()
        )
        others = [n.node_id for n in chosen if n.node_id != self.node.own_id]
        names = [self.node.own_id, *others][: self.cluster.stage_count]
        if len(names) < self.cluster.fewest_stages:
            raise RefusedError(f"only {len(names)} node can take part")
        plan = attrs.evolve(plan_over(*names), may_replace=wish.may_replace)
        shape = pinned or RunShape(wish.context or 4_096, wish.lanes or 4)
        stages = tuple(
            StageEndpoint(
                stage_id=stage.stage_id,
                stage_index=stage.stage_index,
                node_id=stage.node_id,
                layer_start=stage.layer_start,
                layer_end=stage.layer_end,
                host="127.0.0.1",
            )
            for stage in plan.stages
        )
        settings = StageRunSettings(
            model_sha256=wish.model_sha256,
            model_id=wish.model_id,
            ctx_size=shape.ctx_size,
            lane_count=shape.lane_count,
            stages=stages,
        )
        return PlannedRun(
            campaign_plan=plan,
            settings=settings,
            candidates=failover_order(wish.deployed_by, names, reports),
        )
