"""A plan over nodes a and b with its settings."""

from __future__ import annotations

from skippyd.coordination.planning import PlannedRun
from skippyd.coordination.ports import StageEndpoint, StageRunSettings
from support.cluster import plan_over


PLAN = plan_over("a", "b")
SETTINGS = StageRunSettings(
    model_sha256="aa",
    model_id="m",
    ctx_size=512,
    lane_count=2,
    stages=tuple(
        StageEndpoint(
            stage_id=stage.stage_id,
            stage_index=stage.stage_index,
            node_id=stage.node_id,
            layer_start=stage.layer_start,
            layer_end=stage.layer_end,
            host="127.0.0.1",
        )
        for stage in PLAN.stages
    ),
)
PLANNED = PlannedRun(campaign_plan=PLAN, settings=SETTINGS)
