"""Stages of this coordinator's own older runs that nobody stopped.

A coordinator that crashed has forgotten which stops it owed. Its first stage ended with
it, so such a run can serve nobody any more; it only holds memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.coordinator.instant import MS_PER_S
from skippyd.core.coordinator.messages import StageState, StopStage
from skippyd.ids import CoordinatorId


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skippyd.coordination.ports import NodeReport, StageReport
    from skippyd.coordination.rollout_wishes import Wish
    from skippyd.ids import NodeId, RunId

STOP_AGAIN_MS = 10 * MS_PER_S
"""A stop that is under way, or got lost, is repeated no sooner."""

LIVE_STATES = frozenset({StageState.STARTING, StageState.READY})


@attrs.define(eq=False)
class StrayFinder:
    """Finds stray stages in the reports.

    Args:
        own_id: This node, whose coordinator's runs are looked for.
    """

    own_id: NodeId
    _asked_ms: dict[tuple[NodeId, RunId], int] = attrs.field(factory=dict, init=False)

    def stops(
        self,
        wish: Wish,
        kept: frozenset[RunId],
        reports: Mapping[NodeId, NodeReport],
        now_ms: int,
    ) -> Iterator[tuple[NodeId, StopStage]]:
        """Yield the stop of each stray stage with its node.

        Args:
            wish: The model.
            kept: Runs that are served or on their way.
            reports: What nodes say.
            now_ms: Boottime.
        """
        live = {
            (node_id, stage.status.stage.run_id): stage
            for node_id, report in reports.items()
            for stage in report.stages
            if self._is_own(stage, wish) and stage.status.stage.run_id not in kept
        }
        self._asked_ms = {k: v for k, v in self._asked_ms.items() if k in live}
        for place, stage in live.items():
            if now_ms - self._asked_ms.get(place, -STOP_AGAIN_MS) >= STOP_AGAIN_MS:
                self._asked_ms[place] = now_ms
                yield place[0], _stop_of(stage)

    def _is_own(self, stage: StageReport, wish: Wish) -> bool:
        status = stage.status
        return (
            status.coordinator_id == CoordinatorId(self.own_id)
            and status.key.model_id == wish.model_id
            and status.state in LIVE_STATES
        )


def _stop_of(stage: StageReport) -> StopStage:
    status = stage.status
    return StopStage(
        key=status.key,
        stage=status.stage,
        coordinator_term=status.coordinator_term,
        shutdown_generation=status.shutdown_generation,
    )
