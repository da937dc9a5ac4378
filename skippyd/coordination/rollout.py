"""One model on the node that coordinates it: performs what the rules' campaign wants.

Theory of operation. One task takes events in turn, offers each to the `Campaign` and
performs the effects in their order. What takes long (a request to a node, a plan, the
canary, a drain) is a task of its own that puts what came of it into the inbox; an
answer that nobody waits for any more is lost on the campaign. The highest own term is
durable before the first claim of its run leaves.
"""

from __future__ import annotations

import functools
import logging
import math
from typing import TYPE_CHECKING, assert_never

import attrs
import trio

from skippyd.coordination.planning import RunShape, plan_summary
from skippyd.coordination.planning_nodes import check_side
from skippyd.coordination.rollout_news import RolloutNews
from skippyd.coordination.rollout_parts import (
    RolloutParts,
    RolloutState,
    state_of,
)
from skippyd.coordination.rollout_proving import (
    route_of_run,
    until_drained,
    until_healthy,
)
from skippyd.coordination.rollout_runs import RunBook
from skippyd.coordination.rollout_sending import RequestSender
from skippyd.coordination.rollout_wishes import CoordinatorFileError, Wish, forget_wish
from skippyd.core.coordinator.campaign import Campaign
from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    CampaignEvent,
    ChainProved,
    PersistTerm,
    PlanMade,
    PlanMissing,
    ProveChain,
    PublishRoute,
    Replied,
    Report,
    RequestPlan,
    RoutePublished,
    RouteWithdrawn,
    Send,
    StageLost,
    Start,
    Step,
    TimePassed,
    Withdraw,
    WithdrawRoute,
)
from skippyd.core.coordinator.instant import MS_PER_S
from skippyd.core.coordinator.messages import StageReady
from skippyd.errors import SkippyError
from skippyd.ids import CoordinatorId


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from skippyd.coordination.planning import PlannedRun
    from skippyd.coordination.rollout_proving import StageLoad
    from skippyd.core.coordinator.run import Run
    from skippyd.ids import NodeId, RunId

logger = logging.getLogger("skippyd.rollout")

LONGEST_WAIT_SECONDS = 30.0
"""Trio's clock stops in suspend: deadlines are looked at again at least so often."""


@attrs.define(eq=False)
class Rollout:
    """The coordinator of one model; `run` must be running.

    Args:
        wish: What is wanted; a later one replaces it while nothing runs.
        parts: What all rollouts of this node share.
    """

    wish: Wish
    parts: RolloutParts
    is_wanted: bool = attrs.field(default=False, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)
    _campaign: Campaign = attrs.field(init=False)
    _book: RunBook = attrs.field(init=False)
    _news: RolloutNews = attrs.field(init=False)
    _inbox: trio.MemorySendChannel[CampaignEvent] = attrs.field(init=False)
    _queue: trio.MemoryReceiveChannel[CampaignEvent] = attrs.field(init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _planning: trio.CancelScope | None = attrs.field(default=None, init=False)
    _ready_plan: PlannedRun | None = attrs.field(default=None, init=False)
    _shapes: dict[RunId, RunShape] = attrs.field(factory=dict, init=False)
    _last_report: str = attrs.field(default="", init=False)
    _sender: RequestSender = attrs.field(init=False)
    _moved: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        parts = self.parts
        self._campaign = Campaign(
            coordinator_id=CoordinatorId(parts.nodes.own_id),
            newest_term=parts.memory.highest_term,
            withdraw_grace_ms=parts.withdraw_grace_ms,
        )
        self._book = RunBook(parts.draw_key)
        self._news = RolloutNews(parts.nodes.own_id)
        # No bound is needed: requests are bounded by the plan, news by the reports.
        self._inbox, self._queue = trio.open_memory_channel(math.inf)
        self._sender = RequestSender(
            nodes=parts.nodes,
            memory=parts.memory,
            book=self._book,
            spawn=self._spawn,
            offer=self._inbox.send_nowait,
        )

    @property
    def serving(self) -> Run | None:
        """The run whose route is published here."""
        found = self._campaign.serving
        return found.run if found else None

    def state(self) -> RolloutState:
        """How far this model is."""
        return state_of(self._campaign, self.wish, self.is_wanted, self._last_report)

    def start(self, planned: PlannedRun | None = None) -> None:
        """Want this model to run.

        Args:
            planned: A plan that was just made for the wish, used for the first run.
        """
        self.is_wanted, self._is_leaving = True, False
        self._ready_plan = planned
        self._inbox.send_nowait(Start())

    def want_again(self) -> None:
        """Hear that the operator deploys it again: stopped stages may come back."""
        self._inbox.send_nowait(Start())

    def withdraw(self, *, is_leaving: bool = False) -> None:
        """Want it no more: route first, then drain, then stages.

        Args:
            is_leaving: Only this node stops: the others keep the route, so that the
                next candidate takes over.
        """
        self.is_wanted, self._is_leaving = False, is_leaving
        self._ready_plan = None
        if self._planning is not None:
            self._planning.cancel()
        self._inbox.send_nowait(Withdraw())

    async def until_idle(self) -> None:
        """Return when nothing runs and every stop was sent."""
        while not self._is_idle():
            await self._moved.wait()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Coordinate until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for peer in self.parts.nodes.peers():
                self._hear_of_node(peer.node_id, is_available=peer.is_available)
            nursery.start_soon(self._listen)
            nursery.start_soon(self._look_often)
            task_status.started()
            while True:
                event = await self._next_event()
                now = self.parts.clock()
                if isinstance(event, Replied) and isinstance(event.reply, StageReady):
                    run_id = event.reply.status.stage.run_id
                    self._news.note_ready(run_id, event.node_id, now.boottime_ms)
                was_wanted = self._campaign.is_wanted
                effects = self._campaign.offer(event, now, self.parts.jitter())
                if was_wanted and not self._campaign.is_wanted:
                    await self._give_up(event)
                for effect in effects:
                    await self._perform(effect)
                self._moved.set()
                self._moved = trio.Event()

    async def _next_event(self) -> CampaignEvent:
        while True:
            wait_s = math.inf
            deadline_ms = self._campaign.next_deadline()
            if deadline_ms is not None:
                left_ms = deadline_ms - self.parts.clock().boottime_ms
                if left_ms <= 0:
                    return TimePassed()
                wait_s = min(LONGEST_WAIT_SECONDS, left_ms / MS_PER_S)
            with trio.move_on_after(wait_s):
                return await self._queue.receive()

    async def _give_up(self, event: CampaignEvent) -> None:
        """Forget the wish when the rules did: to try again would end alike."""
        if isinstance(event, Withdraw) or not self.is_wanted:
            return
        self.is_wanted = False
        await forget_wish(self.parts.memory, self.wish.model_id)

    def _is_idle(self) -> bool:
        campaign = self._campaign
        return (
            campaign.attempt is None
            and campaign.serving is None
            and self._sender.open_count == 0
            and self._queue.statistics().current_buffer_used == 0
        )

    # News of nodes and of their stages.

    def _hear_of_node(self, node_id: NodeId, *, is_available: bool) -> None:
        for event in self._news.of_node(node_id, is_available=is_available):
            self._inbox.send_nowait(event)

    async def _listen(self) -> None:
        async with self.parts.nodes.subscribe() as changes:
            async for change in changes:
                self._hear_of_node(change.node_id, is_available=change.is_available)
                self._look()

    async def _look_often(self) -> None:
        while True:
            await trio.sleep(self.parts.look_s)
            self._look()

    def _look(self) -> None:
        """Find what the reports say about the runs of this campaign."""
        campaign, parts = self._campaign, self.parts
        reports, now_ms = parts.nodes.reports(), parts.clock().boottime_ms
        for node_id, stop in self._news.strays(self.wish, campaign, reports, now_ms):
            self._sender.send(node_id, stop, None)
        route = parts.routes.route_of(self.wish.model_id)
        for event in self._news.events(campaign, route, reports, now_ms):
            self._inbox.send_nowait(event)
        for load in self._news.loads(campaign, reports):
            self._log(Step.LOAD, load.message, load.node_id, load)

    # Effects.

    async def _perform(self, effect: CampaignEffect) -> None:
        match effect:
            case Send(node_id, request):
                attempt = self._campaign.attempt
                run = None if attempt is None else attempt.run
                self._sender.send(node_id, request, run)
            case PersistTerm(term):
                await self._sender.persist_term(term)
            case RequestPlan():
                self._spawn(functools.partial(self._plan, effect))
            case Report(step, message, node_id):
                self._report(step, message, node_id)
            case _:
                await self._change_route(effect)

    async def _change_route(
        self, effect: ProveChain | PublishRoute | WithdrawRoute
    ) -> None:
        match effect:
            case ProveChain(run):
                self._spawn(functools.partial(self._prove, run))
            case PublishRoute(run):
                await self._publish(run)
            case WithdrawRoute(run_id):
                self._withdraw_route(run_id)
            case _:
                assert_never(effect)

    def _report(self, step: Step, message: str, node_id: NodeId | None) -> None:
        self._last_report = message = self.parts.in_words(message)
        logger.info("%s %s: %s", self.wish.model_id, step.value, message)
        self.parts.routes.note(self.wish.model_id, f"{step.value}: {message}")
        if step is not Step.PUBLISH:
            # That one is said when the route is visible.
            self._log(step, message, node_id)

    def _log(
        self,
        step: Step,
        message: str,
        node_id: NodeId | None = None,
        loading: StageLoad | None = None,
    ) -> None:
        self.parts.log.add(
            step,
            self.parts.in_words(message),
            model_id=self.wish.model_id,
            at_unix_ms=self.parts.clock().unix_ms,
            node_id=node_id,
            stage_id=None if loading is None else loading.stage_id,
            progress=None if loading is None else (loading.done, loading.total),
        )

    def _spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(task)

    # The plan.

    async def _plan(self, wanted: RequestPlan) -> None:
        if self._planning is not None:
            self._planning.cancel()
        with trio.CancelScope() as self._planning:
            self._inbox.send_nowait(await self._planned(wanted))

    async def _planned(self, wanted: RequestPlan) -> PlanMade | PlanMissing:
        parts = self.parts
        planned, self._ready_plan = self._ready_plan, None
        try:
            if planned is None or wanted.excluded:
                if (reason := await parts.guard.reason_to_wait(self.wish)) is not None:
                    return PlanMissing(reason)
                check_side(self.wish, parts.nodes.reports())
                planned = await parts.plans.plan(
                    self.wish,
                    excluded=wanted.excluded,
                    pinned=self._pinned() if wanted.is_replan else None,
                )
        except SkippyError as error:
            return PlanMissing(str(error))
        self._book.plan_made(planned)
        if planned.explained is not None:
            step = Step.REPLAN if wanted.is_replan else Step.PLAN
            self._log(step, plan_summary(planned.explained))
        return PlanMade(planned.campaign_plan)

    def _pinned(self) -> RunShape | None:
        run = self.serving
        return None if run is None else self._shapes.get(run.run_id)

    # The canary, the route, the drain.

    async def _prove(self, run: Run) -> None:
        def is_over() -> bool:
            attempt = self._campaign.attempt
            return attempt is None or attempt.run is not run

        def tell(health: str) -> None:
            self._log(Step.PROVE, f"{run.run_id}: {health}", self.parts.nodes.own_id)

        if await until_healthy(run, self.parts.nodes, is_over=is_over, tell=tell):
            self._inbox.send_nowait(ChainProved(run.run_id))

    async def _publish(self, run: Run) -> None:
        parts = self.parts
        planned = self._book.planned_of(run.plan)
        now = parts.clock()
        route = route_of_run(
            run, planned, self.wish, parts.nodes, lease_from_unix_ms=now.unix_ms
        )
        if route is None or planned is None:
            reason = "its first stage serves no OpenAI address"
            own_id = parts.nodes.own_id
            self._inbox.send_nowait(StageLost(run.run_id, own_id, reason))
            return
        settings = planned.settings
        self._shapes = {run.run_id: RunShape(settings.ctx_size, settings.lane_count)}
        parts.routes.publish(route)
        parts.announcer.say(route.model_id, route)
        message = f"{run.run_id}: published at {route.openai_base_url}"
        self._log(Step.PUBLISH, message, parts.nodes.own_id)
        self._inbox.send_nowait(RoutePublished(run.run_id))
        await self._remember(attrs.evolve(self.wish, ran_on=run.plan.node_ids))

    async def _remember(self, wish: Wish) -> None:
        self.wish = wish
        if not self.is_wanted:
            return
        try:
            await self.parts.memory.remember_wish(wish)
        except CoordinatorFileError:
            # The run is served; only what a restart would bring back is older.
            logger.exception("event=wish_not_kept model=%s", wish.model_id)

    def _withdraw_route(self, run_id: RunId) -> None:
        parts, model_id = self.parts, self.wish.model_id
        route = parts.routes.route_of(model_id)
        if route is not None and route.run_id == run_id:
            parts.routes.withdraw(model_id, run_id, self._last_report)
            ended = attrs.evolve(route, is_ended=True, reason=self._last_report)
            if not self._is_leaving:
                parts.announcer.say(model_id, None if self.is_wanted else ended)
        self._spawn(functools.partial(self._drain, run_id))

    async def _drain(self, run_id: RunId) -> None:
        await until_drained(functools.partial(self.parts.active_requests, run_id))
        self._inbox.send_nowait(RouteWithdrawn(run_id))
