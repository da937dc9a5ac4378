"""From what nodes report to a plan that can be claimed and loaded, or a refusal."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from skippyd.coordination.admission import (
    BACKEND,
    descriptor_text,
    package_ref,
    stage_descriptor,
)
from skippyd.coordination.latency import measured_latencies_us
from skippyd.coordination.planning_model import check_stages, open_planning_model
from skippyd.coordination.planning_nodes import (
    candidate_nodes,
    failover_order,
    usable_bytes,
)
from skippyd.coordination.planning_place import plan_from_node
from skippyd.coordination.ports import StageEndpoint, StageRunSettings
from skippyd.core.coordinator.claim import ClaimKey
from skippyd.core.coordinator.hashes import (
    PlannedLayers,
    participant_set_hash,
    topology_hash,
)
from skippyd.core.coordinator.instant import MS_PER_S
from skippyd.core.coordinator.participants import Participant
from skippyd.core.coordinator.run import (
    LOAD_TIMEOUT_MS,
    PREPARE_TIMEOUT_MS,
    CampaignPlan,
    PlannedStage,
)
from skippyd.core.topology.explain import explain_plan
from skippyd.core.topology.matrices import counted_request
from skippyd.core.topology.plan import TopologyPlan
from skippyd.core.topology.request import PlanRequest
from skippyd.core.topology.wording import refusal_message
from skippyd.errors import RefusedError
from skippyd.ids import ModelId
from skippyd.units import MIB, counted, format_bytes


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from skippyd.coordination.planning_model import PlanningModel
    from skippyd.coordination.ports import NodeReport, Nodes
    from skippyd.coordination.rollout_wishes import Wish
    from skippyd.core.topology.explain import Explanation
    from skippyd.core.topology.plan import PlanRefusal
    from skippyd.ids import NodeId
    from skippyd.runtime.build import BuildFacts

SOURCE_BYTES_PER_S = 16 * MIB
PREPARE_EXTRA_MS = 10 * 60 * MS_PER_S
"""A source may take 16 MiB/s and ten minutes more (skippy-facts 3.5)."""

CACHE_TYPE = "f16"


class PlanRefusedError(RefusedError):
    """No plan: the planner's refusal with its numbers.

    Args:
        refusal: The planner's value.
        model_id: The model that was to be planned.
        left_out: Nodes that could not be planned with, and why.
    """

    def __init__(
        self, refusal: PlanRefusal, model_id: str, left_out: Mapping[NodeId, str]
    ) -> None:
        text = refusal_message(refusal)
        if left_out:
            reasons = "; ".join(f"{node}: {why}" for node, why in left_out.items())
            text = f"{text} (not planned with: {reasons})"
        super().__init__(text)
        self.refusal = refusal
        self.model_id = model_id


class ModelFiles(Protocol):
    """Finds model files of this node by their content."""

    async def obtain(self, sha256: str, *, wanted: str) -> Path:
        """Return the file with this content.

        Raises:
            RefusedError: It is not here; the message says exactly what is missing.
        """
        ...


@attrs.frozen(kw_only=True)
class Explained:
    """A plan with its reasons, as `skippyctl plan` shows them.

    Args:
        request: What the planner was asked.
        plan: What it answered.
        explanation: The candidates beside it.
        left_out: Nodes that could not be planned with, and why.
    """

    request: PlanRequest
    plan: TopologyPlan
    explanation: Explanation
    left_out: Mapping[NodeId, str]


@attrs.frozen(kw_only=True)
class PlannedRun:
    """Everything a rollout needs to run a plan.

    Args:
        campaign_plan: What is claimed and loaded.
        settings: What loads and prepares carry; ports and the run key come later.
        candidates: Who takes over when the coordinator is lost, in order.
        explained: Why it is this plan; None where nobody planned.
    """

    campaign_plan: CampaignPlan
    settings: StageRunSettings
    candidates: tuple[NodeId, ...] = ()
    explained: Explained | None = None


@attrs.frozen
class RunShape:
    """Context and lanes of a run that a replan keeps."""

    ctx_size: int
    lane_count: int


class Plans(Protocol):
    """Makes plans; a rollout asks it."""

    async def plan(
        self,
        wish: Wish,
        *,
        excluded: tuple[NodeId, ...] = (),
        pinned: RunShape | None = None,
    ) -> PlannedRun:
        """Plan a wish over the nodes that are available now.

        Raises:
            RefusedError: There is no plan; the message has the numbers.
        """
        ...


@attrs.frozen(kw_only=True)
class Planner:
    """Plans over the reports of the nodes; implements `Plans`.

    Args:
        nodes: All nodes this one knows.
        files: The model files of this node.
        build: What computes here; called in a thread.
    """

    nodes: Nodes
    files: ModelFiles
    build: Callable[[], BuildFacts]

    async def plan(
        self,
        wish: Wish,
        *,
        excluded: tuple[NodeId, ...] = (),
        pinned: RunShape | None = None,
    ) -> PlannedRun:
        """See `Plans`; reads the model's header in a thread, measures distances.

        Raises:
            RefusedError: There is no plan; the message has the numbers.
            ModelError: The model's file cannot be read.
        """
        opened = await self._open(wish)
        reports = self.nodes.reports()
        chosen, left_out = candidate_nodes(
            reports,
            self.nodes.own_id,
            wish,
            excluded=excluded,
            peers=self.nodes.peers(),
        )
        distances = await measured_latencies_us(
            self.nodes, [node.node_id for node in chosen]
        )
        nodes = tuple(
            attrs.evolve(node, latency_us=distances.get(node.node_id))
            for node in chosen
        )
        request = PlanRequest(
            model=opened.shape,
            nodes=nodes,
            min_nodes=len(nodes) if wish.node_ids else 1,
            context_override=wish.context if pinned is None else pinned.ctx_size,
            lanes_override=wish.lanes if pinned is None else pinned.lane_count,
        )
        explained = await trio.to_thread.run_sync(
            self._explained, request, opened, wish, left_out
        )
        return await self._run_of(explained, opened, wish, reports)

    async def _open(self, wish: Wish) -> PlanningModel:
        path = await self.files.obtain(
            wish.model_sha256, wanted=f"the model {wish.model_id}, to plan it"
        )
        read = functools.partial(
            open_planning_model, path, type_k=CACHE_TYPE, type_v=CACHE_TYPE
        )
        return await trio.to_thread.run_sync(read)

    def _explained(
        self,
        request: PlanRequest,
        opened: PlanningModel,
        wish: Wish,
        left_out: Mapping[NodeId, str],
    ) -> Explained:
        answer = plan_from_node(request, opened.outside, self.nodes.own_id)
        if not isinstance(answer, TopologyPlan):
            raise PlanRefusedError(answer, wish.model_id, left_out)
        check_stages(opened, answer.stages)
        return Explained(
            request=request,
            plan=answer,
            explanation=explain_plan(counted_request(request, opened.outside), answer),
            left_out=left_out,
        )

    async def _run_of(
        self,
        explained: Explained,
        opened: PlanningModel,
        wish: Wish,
        reports: Mapping[NodeId, NodeReport],
    ) -> PlannedRun:
        settings = run_settings(explained.plan, wish, reports)
        admissions = await trio.to_thread.run_sync(
            self._admissions, explained.plan, opened, settings
        )
        return PlannedRun(
            campaign_plan=campaign_plan(
                explained, wish, admissions, source_bytes=opened.source_bytes
            ),
            settings=settings,
            candidates=failover_order(
                wish.deployed_by, [stage.node_id for stage in settings.stages], reports
            ),
            explained=explained,
        )

    def _admissions(
        self, plan: TopologyPlan, opened: PlanningModel, settings: StageRunSettings
    ) -> tuple[str, ...]:
        build = self.build()
        return tuple(
            descriptor_text(
                stage_descriptor(
                    opened.model, stage.layer_start, stage.layer_end, settings, build
                )
            )
            for stage in plan.stages
        )


def run_settings(
    plan: TopologyPlan, wish: Wish, reports: Mapping[NodeId, NodeReport]
) -> StageRunSettings:
    """What every stage of a plan is told, before ports and the run key are known."""
    return StageRunSettings(
        model_sha256=wish.model_sha256,
        model_id=wish.model_id,
        ctx_size=plan.context_length,
        lane_count=plan.lanes,
        cache_type_k=CACHE_TYPE,
        cache_type_v=CACHE_TYPE,
        stages=tuple(
            StageEndpoint(
                stage_id=stage.stage_id,
                stage_index=stage.stage_index,
                node_id=stage.node_id,
                layer_start=stage.layer_start,
                layer_end=stage.layer_end,
                host=reports[stage.node_id].stage_host,
            )
            for stage in plan.stages
        ),
    )


def campaign_plan(
    explained: Explained, wish: Wish, admissions: tuple[str, ...], *, source_bytes: int
) -> CampaignPlan:
    """Name a plan with its hashes and give it the time its bytes need."""
    plan = explained.plan
    chosen = {stage.node_id for stage in plan.stages}
    participants = tuple(
        Participant(
            node_id=node.node_id,
            vram_bytes=node.usable_bytes,
            rtt_ms=(node.latency_us or 0) // 1_000,
        )
        for node in explained.request.nodes
        if node.node_id in chosen
    )
    layers = tuple(
        PlannedLayers(
            stage_id=stage.stage_id,
            stage_index=stage.stage_index,
            node_id=stage.node_id,
            layer_start=stage.layer_start,
            layer_end=stage.layer_end,
            parameter_bytes=stage.parameter_bytes,
        )
        for stage in plan.stages
    )
    transfer_ms = source_bytes * MS_PER_S // SOURCE_BYTES_PER_S
    return CampaignPlan(
        key=ClaimKey(
            model_id=ModelId(wish.model_id),
            package_ref=package_ref(wish.model_sha256),
            manifest_sha256=wish.model_sha256,
        ),
        stages=tuple(
            PlannedStage(
                node_id=stage.node_id,
                stage_id=stage.stage_id,
                stage_index=stage.stage_index,
                layer_start=stage.layer_start,
                layer_end=stage.layer_end,
                admission=admission,
                backend=BACKEND,
                source_model_sha256=wish.model_sha256,
                source_model_bytes=source_bytes,
            )
            for stage, admission in zip(plan.stages, admissions, strict=True)
        ),
        participant_set_hash=participant_set_hash(participants),
        topology_hash=topology_hash(layers),
        prepare_timeout_ms=max(PREPARE_TIMEOUT_MS, transfer_ms + PREPARE_EXTRA_MS),
        load_timeout_ms=max(LOAD_TIMEOUT_MS, transfer_ms),
        may_replace=wish.may_replace,
    )


def plan_summary(explained: Explained) -> str:
    """A plan in one line, for the events of a deployment; nodes by their ids."""
    stages = ", ".join(
        f"{stage.stage_id} on {stage.node_id} layers "
        f"{stage.layer_start} to {stage.layer_end} "
        f"({format_bytes(stage.needed_bytes, is_need=True)} of "
        f"{format_bytes(usable_bytes(explained.request, stage.node_id))})"
        for stage in explained.plan.stages
    )
    plan = explained.plan
    return f"context {plan.context_length}, {counted(plan.lanes, 'lane')}: {stages}"
