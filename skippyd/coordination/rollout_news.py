"""What a coordinator learns by looking: at reports, at routes, at what it has itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.coordination.rollout_proving import ProgressTeller
from skippyd.coordination.rollout_reports import ReportReader
from skippyd.coordination.rollout_rivals import RivalWatch
from skippyd.coordination.rollout_strays import StrayFinder


if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from skippyd.coordination.ports import NodeReport, Route
    from skippyd.coordination.rollout_proving import StageLoad
    from skippyd.coordination.rollout_wishes import Wish
    from skippyd.core.coordinator.campaign import Campaign
    from skippyd.core.coordinator.campaign_effects import (
        PeerChanged,
        PeerLeaving,
        StageLost,
    )
    from skippyd.core.coordinator.messages import StopStage
    from skippyd.core.coordinator.run import Run
    from skippyd.ids import NodeId, RunId


def _reader(news: RolloutNews) -> ReportReader:
    return ReportReader(news.own_id)


def _rivals(news: RolloutNews) -> RivalWatch:
    return RivalWatch(news.own_id)


def _strays(news: RolloutNews) -> StrayFinder:
    return StrayFinder(news.own_id)


@attrs.define(eq=False)
class RolloutNews:
    """The news of one model, each piece once.

    Args:
        own_id: This node.
    """

    own_id: NodeId
    _reader: ReportReader = attrs.Factory(_reader, takes_self=True)
    _rivals: RivalWatch = attrs.Factory(_rivals, takes_self=True)
    _strays: StrayFinder = attrs.Factory(_strays, takes_self=True)
    _progress: ProgressTeller = attrs.Factory(ProgressTeller)

    def of_node(
        self, node_id: NodeId, *, is_available: bool
    ) -> tuple[PeerChanged, ...]:
        """Say that a node came or went, when that is news."""
        return self._reader.peer_events(node_id, is_available=is_available)

    def note_ready(self, run_id: RunId, node_id: NodeId, now_ms: int) -> None:
        """A node has answered that its stage is ready."""
        self._reader.note_ready(run_id, node_id, now_ms)

    def events(
        self,
        campaign: Campaign,
        route: Route | None,
        reports: Mapping[NodeId, NodeReport],
        now_ms: int,
    ) -> Iterator[StageLost | PeerLeaving]:
        """Yield what the campaign has to hear.

        Args:
            campaign: What this node does.
            route: Where the model is served, as everybody knows.
            reports: What nodes say.
            now_ms: Boottime.
        """
        runs = _runs(campaign)
        self._reader.forget_other_runs(frozenset(run.run_id for run in runs))
        yield from self._rivals.lost_runs(campaign, route, reports)
        for run in runs:
            yield from self._reader.lost_stages(run, reports, now_ms)
        yield from self._reader.leaving_nodes(reports)

    def strays(
        self,
        wish: Wish,
        campaign: Campaign,
        reports: Mapping[NodeId, NodeReport],
        now_ms: int,
    ) -> Iterator[tuple[NodeId, StopStage]]:
        """Yield the stop of each own stage that belongs to nothing any more."""
        kept = frozenset(run.run_id for run in _runs(campaign))
        return self._strays.stops(wish, kept, reports, now_ms)

    def loads(
        self, campaign: Campaign, reports: Mapping[NodeId, NodeReport]
    ) -> Iterator[StageLoad]:
        """Yield the stages whose loading has come further."""
        if campaign.attempt is not None:
            yield from self._progress.news(campaign.attempt.run, reports)


def _runs(campaign: Campaign) -> list[Run]:
    holders = (campaign.attempt, campaign.serving)
    return [holder.run for holder in holders if holder is not None]
