"""Takes a model over when its coordinator is lost; leaves healthy chains alone.

Candidates stand in an order that the route carries. The first one that is available
adopts the wish; those behind it do so later, in case it cannot. An adopter first
watches: a chain that works without its coordinator is claimed anew only when one of
its stages is lost or half of what was left of its lease is gone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.rollout_reports import (
    LOST_STATES,
    is_coordinated,
    stage_of_run,
)
from skippyd.coordination.rollout_wishes import Wish
from skippyd.core.coordinator.instant import MS_PER_S


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from skippyd.coordination.ports import Nodes, Route
    from skippyd.coordination.route import RouteTable
    from skippyd.core.coordinator.instant import Instant
    from skippyd.ids import RunId

logger = logging.getLogger("skippyd.failover")

WATCH_SECONDS = 1.0
PATIENCE_SECONDS = 30.0
"""How much longer each candidate waits than the one before it."""

LEAVE_SECONDS = 40.0
LEAVE_LOOK_SECONDS = 0.2
"""A stage that is asked to stop may let its answers finish first."""

FAILED_CHECKS = 2
"""One failed look may be a hiccup."""


@attrs.define(eq=False, kw_only=True)
class ChainWatch:
    """Says whether a model's chain is to be left alone; implements `ChainGuard`.

    Args:
        nodes: All nodes this one knows.
        routes: What this node follows.
        is_serving: Asks the first stage of a route whether the chain answers.
        clock: Reads both clocks.
        watch_s: How often the chain is looked at, in seconds.
    """

    nodes: Nodes
    routes: RouteTable
    is_serving: Callable[[Route], Awaitable[bool]]
    clock: Callable[[], Instant]
    watch_s: float = WATCH_SECONDS

    async def reason_to_wait(self, wish: Wish) -> str | None:
        """See `ChainGuard`; returns when the chain's fate is known."""
        route = self.routes.route_of(wish.model_id)
        if route is None:
            return self._elder(wish)
        if route.coordinator_id == self.nodes.own_id:
            return None
        if wish.may_replace:
            return None
        if is_coordinated(self.nodes.reports(), route):
            return f"{route.coordinator_id} serves it as {route.run_id}"
        if route.coordinator_id in self.nodes.reports():
            await self._until_left(route)
            return None
        logger.info("watching %s without its coordinator", route.run_id)
        return await self._watched(route)

    def _elder(self, wish: Wish) -> str | None:
        """Leave it to the node where it was deployed, when that one is back."""
        elder = wish.deployed_by
        if not wish.is_adopted or elder == self.nodes.own_id:
            return None
        report = self.nodes.reports().get(elder)
        if report is None or report.is_draining:
            return None
        return f"{elder}, where it was deployed, is back and brings it up itself"

    async def _until_left(self, route: Route) -> None:
        """Let a coordinator that leaves stop its stages: a claim would meet them."""
        with trio.move_on_after(LEAVE_SECONDS):
            while True:
                reports = self.nodes.reports().values()
                if not any(stage_of_run(report, route.run_id) for report in reports):
                    return
                await trio.sleep(LEAVE_LOOK_SECONDS)

    async def _watched(self, route: Route) -> str | None:
        now = self.clock()
        left_ms = max(0, route.lease_until_unix_ms - now.unix_ms)
        # The wall clock may be set; what is left is counted on the other one.
        until_ms = now.boottime_ms + left_ms // 2
        failed = 0
        while failed < FAILED_CHECKS and self.clock().boottime_ms < until_ms:
            if self.routes.route_of(route.model_id) != route:
                return None
            if is_coordinated(self.nodes.reports(), route):
                return f"{route.coordinator_id}, its coordinator, is back"
            if self._is_stage_lost(route):
                return None
            failed = 0 if await self.is_serving(route) else failed + 1
            wait_s = (until_ms - self.clock().boottime_ms) / MS_PER_S
            await trio.sleep(max(0.0, min(self.watch_s, wait_s)))
        return None

    def _is_stage_lost(self, route: Route) -> bool:
        reports = self.nodes.reports()
        for node_id in route.node_ids:
            if node_id == route.coordinator_id:
                continue
            report = reports.get(node_id)
            stage = None if report is None else stage_of_run(report, route.run_id)
            if stage is None or stage.status.state in LOST_STATES:
                return True
        return False


@attrs.define(eq=False, kw_only=True)
class Failover:
    """Adopts the wishes of lost coordinators; `run` must be running.

    Args:
        nodes: All nodes this one knows.
        routes: What this node follows.
        adopt: Takes a wish over; harmless when repeated.
        watch_s: How often routes are looked at besides all news, in seconds.
        patience_s: How much longer each candidate waits than the one before it.
    """

    nodes: Nodes
    routes: RouteTable
    adopt: Callable[[Wish], Awaitable[None]]
    watch_s: float = WATCH_SECONDS
    patience_s: float = PATIENCE_SECONDS
    _lost_since: dict[RunId, float] = attrs.field(factory=dict, init=False)
    _adopted: set[RunId] = attrs.field(factory=set, init=False)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Look at every route, at each piece of news and from time to time."""
        async with self.nodes.subscribe() as changes:
            task_status.started()
            while True:
                await self._look()
                with trio.move_on_after(self.watch_s):
                    await changes.receive()

    async def _look(self) -> None:
        if not self.routes.published():
            return
        reports = self.nodes.reports()
        self.routes.reconcile(reports)
        routes = self.routes.published()
        known = {route.run_id for route in routes}
        self._adopted &= known
        self._lost_since = {k: v for k, v in self._lost_since.items() if k in known}
        for route in routes:
            if is_coordinated(reports, route):
                self._lost_since.pop(route.run_id, None)
                self._adopted.discard(route.run_id)
            elif self._is_our_turn(route):
                self._adopted.add(route.run_id)
                await self.adopt(wish_of(route))

    def _is_our_turn(self, route: Route) -> bool:
        own_id = self.nodes.own_id
        if own_id not in route.candidates or route.run_id in self._adopted:
            return False
        own = self.nodes.reports().get(own_id)
        if own is not None and own.is_draining:
            return False
        now_s = trio.current_time()
        since_s = self._lost_since.setdefault(route.run_id, now_s)
        reports = self.nodes.reports()
        place = route.candidates.index(own_id)
        before = [
            candidate
            for candidate in route.candidates[:place]
            if candidate in reports and not reports[candidate].is_draining
        ]
        return now_s - since_s >= len(before) * self.patience_s


def wish_of(route: Route) -> Wish:
    """The wish behind a route, as a candidate takes it over."""
    deployed_by = route.candidates[0] if route.candidates else route.coordinator_id
    return Wish(
        model_id=route.model_id,
        model_sha256=route.model_sha256,
        deployed_by=deployed_by,
        context=route.ctx_size or None,
        lanes=route.lane_count or None,
        node_ids=route.wanted_nodes,
        is_adopted=True,
        ran_on=route.node_ids,
    )
