"""From loaded stages to a visible route, and from a withdrawn one to stages at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.ports import Route
from skippyd.coordination.rollout_reports import stage_of_run
from skippyd.core.coordinator.instant import MAX_LEASE_MS
from skippyd.core.coordinator.messages import StageState
from skippyd.units import format_bytes


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from skippyd.coordination.planning import PlannedRun
    from skippyd.coordination.ports import NodeReport, Nodes
    from skippyd.coordination.rollout_wishes import Wish
    from skippyd.core.coordinator.run import Run
    from skippyd.ids import NodeId

HEALTHY = "ok"
HEALTH_EVERY_SECONDS = 0.2
DRAIN_EVERY_SECONDS = 0.1
PROGRESS_STEPS = 20


@attrs.frozen(kw_only=True)
class StageLoad:
    """How far one stage's loading is, in bytes."""

    stage_id: str
    node_id: NodeId
    done: int
    total: int

    @property
    def message(self) -> str:
        """The same in words."""
        done, total = format_bytes(self.done), format_bytes(self.total)
        return f"{self.stage_id}: {done} of {total}"


@attrs.define(eq=False)
class ProgressTeller:
    """Finds how far loads are in the reports; says each twentieth once."""

    _told: dict[tuple[str, NodeId], int] = attrs.field(factory=dict, init=False)

    def news(
        self, run: Run, reports: Mapping[NodeId, NodeReport]
    ) -> Iterator[StageLoad]:
        """Yield the stages that have come further since the last time."""
        self._told = {k: v for k, v in self._told.items() if k[0] == run.run_id}
        for planned in run.plan.stages:
            report = reports.get(planned.node_id)
            stage = None if report is None else stage_of_run(report, run.run_id)
            if stage is None or stage.status.state is not StageState.STARTING:
                continue
            done, total = stage.loaded_bytes, stage.total_bytes
            step = done * PROGRESS_STEPS // total if total > 0 else 0
            place = (run.run_id, planned.node_id)
            if step > self._told.get(place, 0):
                self._told[place] = step
                yield StageLoad(
                    stage_id=planned.stage_id,
                    node_id=planned.node_id,
                    done=done,
                    total=total,
                )


async def until_healthy(
    run: Run,
    nodes: Nodes,
    *,
    is_over: Callable[[], bool],
    tell: Callable[[str], None],
) -> bool:
    """Wait until the first stage's canary went through the whole chain.

    Its own process sends the canary; its health says what came of it.

    Args:
        run: The run; its first stage is on this node.
        nodes: All nodes.
        is_over: Whether nobody waits any more.
        tell: Told each new health.

    Returns:
        False when nobody waited any more.
    """
    told: str | None = None
    while not is_over():
        report = nodes.reports().get(nodes.own_id)
        stage = None if report is None else stage_of_run(report, run.run_id)
        health = None if stage is None else stage.health
        if health == HEALTHY:
            return True
        if health is not None and health != told:
            tell(health)
            told = health
        await trio.sleep(HEALTH_EVERY_SECONDS)
    return False


async def until_drained(active_requests: Callable[[], int]) -> None:
    """Wait until no request uses a run; the campaign bounds this wait."""
    while True:
        if not active_requests():
            return
        await trio.sleep(DRAIN_EVERY_SECONDS)


def route_of_run(
    run: Run,
    planned: PlannedRun | None,
    wish: Wish,
    nodes: Nodes,
    *,
    lease_from_unix_ms: int,
) -> Route | None:
    """Make the route of a proven run; None when its first stage has no address."""
    report = nodes.reports().get(nodes.own_id)
    stage = None if report is None else stage_of_run(report, run.run_id)
    if planned is None or stage is None or stage.openai_base_url is None:
        return None
    return Route(
        model_id=run.plan.key.model_id,
        run_id=run.run_id,
        term=run.term,
        coordinator_id=nodes.own_id,
        openai_base_url=stage.openai_base_url,
        candidates=planned.candidates,
        model_sha256=run.plan.key.manifest_sha256,
        node_ids=run.plan.node_ids,
        wanted_nodes=wish.node_ids,
        ctx_size=planned.settings.ctx_size,
        lane_count=planned.settings.lane_count,
        lease_until_unix_ms=lease_from_unix_ms + MAX_LEASE_MS,
    )
