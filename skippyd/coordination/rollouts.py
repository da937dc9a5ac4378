"""All models that this node coordinates: what operators ask, and what a restart resumes.

Rollouts.run
  ├── RouteAnnouncer.run
  ├── Failover.run
  └── Rollout.run, one for each model
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.failover import Failover
from skippyd.coordination.node_words import known_names, label, refusals_in_words
from skippyd.coordination.rollout import Rollout
from skippyd.coordination.rollout_wishes import CoordinatorFileError, forget_wish
from skippyd.errors import RefusedError


if TYPE_CHECKING:
    from collections.abc import Iterable

    from skippyd.coordination.planning import PlannedRun
    from skippyd.coordination.rollout_events import EventLog
    from skippyd.coordination.rollout_parts import RolloutParts, RolloutState
    from skippyd.coordination.rollout_wishes import Wish
    from skippyd.ids import NodeId

logger = logging.getLogger("skippyd.rollout")

SETTLE_EVERY_SECONDS = 0.5
MAX_ROLLOUTS = 64


@attrs.define(eq=False)
class Rollouts:
    """The coordinator of this node; `run` must be running.

    Args:
        parts: What all rollouts share.
        adopts: Whether it takes over from lost coordinators.
    """

    parts: RolloutParts
    adopts: bool = True
    _rollouts: dict[str, Rollout] = attrs.field(factory=dict, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _deploying: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    @property
    def events(self) -> EventLog:
        """What deployments report; watchers resume from a sequence number."""
        return self.parts.log

    def states(self) -> tuple[RolloutState, ...]:
        """Every model of this coordinator, sorted by name."""
        return tuple(rollout.state() for _, rollout in sorted(self._rollouts.items()))

    def resolve_nodes(self, named: Iterable[str]) -> tuple[NodeId, ...]:
        """Turn what an operator calls nodes (names, or starts of ids) into ids.

        Raises:
            RefusedError: A name is unknown or means several nodes.
        """
        names = known_names(self.parts.nodes)
        return tuple(dict.fromkeys(_resolved(text, names) for text in named))

    async def dry_run(self, wish: Wish) -> PlannedRun:
        """Plan and do nothing.

        Raises:
            RefusedError: There is no plan; the message has the numbers.
        """
        with refusals_in_words(self.parts.nodes):
            return await self.parts.plans.plan(wish)

    async def deploy(self, wish: Wish) -> PlannedRun | None:
        """Want a model to run here; its story is in the events.

        Returns:
            The plan of the first run; None when the same wish is there already.

        Raises:
            RefusedError: There is no plan, or the model runs or is wanted otherwise.
            CoordinatorFileError: The wish could not be remembered.
        """
        async with self._deploying:
            with refusals_in_words(self.parts.nodes):
                return await self._deploy(wish)

    async def _deploy(self, wish: Wish) -> PlannedRun | None:
        rollout = self._rollouts.get(wish.model_id)
        if rollout is not None and rollout.is_wanted:
            self._check_same(rollout, wish)
            rollout.want_again()
            return None
        self._check_foreign(wish)
        planned = await self.parts.plans.plan(wish)
        await self.parts.memory.remember_wish(wish)
        if rollout is None:
            rollout = await self._add(wish)
        else:
            await rollout.until_idle()
            rollout.wish = wish
        rollout.start(planned)
        return planned

    async def withdraw(self, model_id: str) -> None:
        """Want a model no more; returns when its stages were told to stop.

        Raises:
            RefusedError: It is not coordinated here; the message says where it is.
            CoordinatorFileError: That could not be remembered.
        """
        rollout = self._rollouts.get(model_id)
        route = self.parts.routes.route_of(model_id)
        if route is not None and route.coordinator_id != self.parts.nodes.own_id:
            raise RefusedError(
                f"{model_id} is coordinated by {self._called(route.coordinator_id)}; say "
                "`skippyctl withdraw` there: that ends it on every node"
            )
        if rollout is None or not rollout.is_wanted:
            known = ", ".join(sorted(self._wanted())) or "none"
            raise RefusedError(
                f"{model_id} is not deployed by this node; deployed are: {known}"
            )
        await self.parts.memory.forget_wish(model_id)
        rollout.withdraw()
        await rollout.until_idle()

    async def give_up(self, model_id: str) -> bool:
        """Want a model no more because a stage of it is being stopped here.

        Returns:
            Whether this node coordinated it. Its route goes at once.

        Raises:
            CoordinatorFileError: That could not be remembered.
        """
        rollout = self._rollouts.get(model_id)
        if rollout is None or not rollout.is_wanted:
            return False
        await self.parts.memory.forget_wish(model_id)
        rollout.withdraw()
        return True

    async def stop(self) -> None:
        """Leave every run to the next candidate; keep the wishes for a restart.

        The node is draining already: that is how the others know.
        """
        for rollout in self._rollouts.values():
            if rollout.is_wanted:
                rollout.withdraw(is_leaving=True)
        for rollout in self._rollouts.values():
            await rollout.until_idle()

    async def resume(self) -> None:
        """Want again what this node remembers, as after a restart or a drain."""
        async with self._deploying:
            for wish in self.parts.memory.wishes():
                rollout = self._rollouts.get(wish.model_id)
                if rollout is None:
                    rollout = await self._add(wish)
                if not rollout.is_wanted:
                    rollout.wish = wish
                    rollout.start()

    async def adopt(self, wish: Wish) -> None:
        """Take over what another coordinator was to run; harmless when repeated."""
        async with self._deploying:
            rollout = self._rollouts.get(wish.model_id)
            if rollout is not None and rollout.is_wanted:
                return
            logger.warning("adopting %s of a lost coordinator", wish.model_id)
            try:
                await self.parts.memory.remember_wish(wish)
            except CoordinatorFileError:
                # Serving it now matters more than after a restart.
                logger.exception("event=wish_not_kept model=%s", wish.model_id)
            if rollout is None:
                rollout = await self._add(wish)
            rollout.wish = wish
            rollout.start()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Coordinate until cancelled; what was wanted before a restart is resumed."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self.parts.routes.on_end(self._end_elsewhere)
            await nursery.start(self.parts.announcer.run)
            nursery.start_soon(self._greet)
            if self.adopts:
                failover = Failover(
                    nodes=self.parts.nodes,
                    routes=self.parts.routes,
                    adopt=self.adopt,
                    watch_s=self.parts.look_s,
                )
                await nursery.start(failover.run)
            task_status.started()
            if self.parts.memory.wishes():
                await self._settle()
                await self.resume()
            await trio.sleep_forever()

    async def _settle(self) -> None:
        """Let the others be heard first: one of them may serve it meanwhile."""
        with trio.move_on_after(self.parts.settle_s):
            while True:
                everybody_came = all(p.is_available for p in self.parts.nodes.peers())
                # Routes are told right after a connection stands: one pause more.
                await trio.sleep(SETTLE_EVERY_SECONDS)
                if everybody_came:
                    return

    async def _greet(self) -> None:
        """Tell every node that comes back where the models are served."""
        available: set[NodeId] = set()
        async with self.parts.nodes.subscribe() as changes:
            async for change in changes:
                if not change.is_available:
                    available.discard(change.node_id)
                elif change.node_id not in available:
                    available.add(change.node_id)
                    self.parts.announcer.node_returned(change.node_id)

    async def _add(self, wish: Wish) -> Rollout:
        if len(self._rollouts) >= MAX_ROLLOUTS:
            raise RefusedError(
                f"this node has coordinated {MAX_ROLLOUTS} models since its start; "
                "restart skippyd to forget the withdrawn ones"
            )
        assert self._nursery is not None, "Rollouts.run is not running"
        rollout = self._rollouts[wish.model_id] = Rollout(wish, self.parts)
        await self._nursery.start(rollout.run)
        return rollout

    def _check_same(self, rollout: Rollout, wish: Wish) -> None:
        known = attrs.evolve(rollout.wish, ran_on=(), is_adopted=False)
        if attrs.evolve(wish, deployed_by=known.deployed_by) != known:
            raise RefusedError(
                f"{wish.model_id} is deployed already, and otherwise "
                f"({rollout.state().phase}); withdraw it first"
            )

    def _check_foreign(self, wish: Wish) -> None:
        route = self.parts.routes.route_of(wish.model_id)
        if route is None or wish.may_replace:
            return
        if route.coordinator_id in self.parts.nodes.reports():
            raise RefusedError(
                f"{wish.model_id} is served already as {route.run_id} by coordinator "
                f"{self._called(route.coordinator_id)}; withdraw it there first"
            )

    def _called(self, node_id: NodeId) -> str:
        return label(node_id, known_names(self.parts.nodes).get(node_id, ""))

    def _wanted(self) -> list[str]:
        return [name for name, rollout in self._rollouts.items() if rollout.is_wanted]

    def _end_elsewhere(self, model_id: str) -> None:
        rollout = self._rollouts.get(model_id)
        if rollout is None or not rollout.is_wanted or self._nursery is None:
            return
        logger.warning("%s was withdrawn on another node", model_id)
        rollout.withdraw()
        self._nursery.start_soon(forget_wish, self.parts.memory, model_id)


def _resolved(text: str, names: dict[NodeId, str]) -> NodeId:
    found = [node_id for node_id, name in names.items() if name == text]
    if not found:
        found = [node_id for node_id in names if text and node_id.startswith(text)]
    if len(found) == 1:
        return found[0]
    what = "no node" if not found else "several nodes"
    known = ", ".join(label(node_id, name) for node_id, name in names.items())
    raise RefusedError(f"{text!r} means {what}; known are {known}")
