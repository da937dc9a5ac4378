"""What a coordinator gives up because another one's run of the model is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.coordination.rollout_reports import is_coordinated
from skippyd.core.coordinator.campaign_effects import StageLost
from skippyd.ids import NodeId


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skippyd.coordination.ports import NodeReport, Route
    from skippyd.core.coordinator.campaign import Campaign
    from skippyd.core.coordinator.run import Run
    from skippyd.ids import RunId


@attrs.define(eq=False)
class RivalWatch:
    """Finds own runs that a rival's newer one has made idle; says each once.

    Fences see to this where runs share a node. Two sides of a partition may have come
    to run apart from each other, though, and an attempt that has not claimed yet is
    better ended than fought out.

    Args:
        own_id: This node.
    """

    own_id: NodeId
    _said: set[RunId] = attrs.field(factory=set, init=False)

    def lost_runs(
        self,
        campaign: Campaign,
        route: Route | None,
        reports: Mapping[NodeId, NodeReport],
    ) -> Iterator[StageLost]:
        """Yield the loss of every own run that must give way.

        Args:
            campaign: What this node does.
            route: Where the model is served, as everybody knows.
            reports: What nodes say.
        """
        own = _giving_way(campaign, route) if route is not None else ()
        self._said &= {run.run_id for run in own}
        if route is None or route.coordinator_id == self.own_id:
            return
        if not is_coordinated(reports, route):
            return
        reason = f"{route.coordinator_id} serves it as {route.run_id}"
        for run in own:
            if run.run_id not in self._said:
                self._said.add(run.run_id)
                yield StageLost(run.run_id, self.own_id, reason, is_fenced=True)


def _giving_way(campaign: Campaign, route: Route) -> tuple[Run, ...]:
    """The own runs that are older than the route, or have claimed nothing yet."""
    runs: list[Run] = []
    attempt, serving = campaign.attempt, campaign.serving
    if attempt is not None and campaign.yields_to_rivals:
        runs.append(attempt.run)
    if serving is not None and not serving.is_withdrawing:
        own = (serving.run.term, NodeId(serving.run.coordinator_id))
        if own < (route.term, route.coordinator_id):
            runs.append(serving.run)
    return tuple(runs)
