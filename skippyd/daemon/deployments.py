"""What operators ask of the coordinator, and the story of it as events with an end.

Rollouts go on by themselves whatever anybody watches. Here it is decided which event
ends what somebody asked for, and with which exit code their command ends.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

import attrs

from skippyd.admin import schema
from skippyd.coordination.planning import plan_summary
from skippyd.coordination.rollout_wishes import Wish
from skippyd.core.coordinator.campaign_effects import Step
from skippyd.daemon.clock import read_instant
from skippyd.errors import ExitCode, RefusedError, SkippyError


if TYPE_CHECKING:
    import trio

    from skippyd.admin import wishes
    from skippyd.coordination.planning import PlannedRun
    from skippyd.coordination.rollout_events import EventLog, RolloutEvent
    from skippyd.daemon.node import Node

logger = logging.getLogger("skippyd.daemon")

ENDINGS_KEPT = 256


@attrs.define(eq=False)
class Deployments:
    """Deploys and withdraws for operators.

    Args:
        node: The node.
        nursery: Where what outlives a request runs.
    """

    node: Node
    nursery: trio.Nursery
    _endings: dict[int, ExitCode] = attrs.field(factory=dict, init=False)

    @property
    def _log(self) -> EventLog:
        return self.node.rollouts.events

    async def deploy(self, wish: wishes.Deploy) -> schema.Deployment:
        """Begin a deployment; it goes on when the operator has gone.

        Raises:
            RefusedError: There is no such model here, or no plan; with the numbers.
        """
        if self.node.stages.is_draining:
            raise RefusedError(
                "this node is draining; `skippyctl drain --undo` takes stages again"
            )
        wanted = await self._wish(wish)
        after = self._log.last_sequence
        if wish.dry_run:
            planned = await self.node.rollouts.dry_run(wanted)
            self._tell_dry_run(wanted.model_id, planned)
        elif await self.node.rollouts.deploy(wanted) is None:
            self._tell_deployed(wanted.model_id)
        return schema.Deployment(model_id=wanted.model_id, after=after)

    async def withdraw(self, wish: wishes.Withdraw) -> schema.Deployment:
        """Begin to withdraw a model.

        Raises:
            RefusedError: It is not deployed here, or several are and none was named.
        """
        model_id = wish.model or self._only_model()
        after = self._log.last_sequence
        wanted = {s.wish.model_id for s in self.node.rollouts.states() if s.is_wanted}
        route = self.node.routes.route_of(model_id)
        is_foreign = (
            route is not None and route.coordinator_id != self.node.identity.node_id
        )
        if model_id not in wanted or is_foreign:
            # Refused at once, with the reason.
            await self.node.rollouts.withdraw(model_id)
        self.nursery.start_soon(functools.partial(self._withdraw, model_id))
        return schema.Deployment(model_id=model_id, after=after)

    def stopped(self, model_id: str) -> None:
        """Tell watchers that a deployment is over because a stage was stopped here."""
        self._end(
            model_id, Step.WITHDRAW, f"{model_id} is withdrawn: its stage was stopped"
        )

    async def events(self, wish: wishes.WatchEvents) -> schema.Events:
        """Events after the asked one; waits until there is one."""
        found = await self._log.newer(wish.after, wish.model_id)
        missed = 0
        if wish.model_id is None:
            # Of one model alone the numbers have gaps anyway.
            missed = max(0, found[0].sequence - wish.after - 1)
        return schema.Events(
            missed=missed, items=tuple(self._document(event) for event in found)
        )

    async def _wish(self, wish: wishes.Deploy) -> Wish:
        entry = await self.node.inventory.resolve(wish.model)
        assert entry.sha256 is not None
        return Wish(
            model_id=entry.name,
            model_sha256=entry.sha256,
            deployed_by=self.node.identity.node_id,
            context=wish.context,
            lanes=wish.lanes,
            node_ids=self.node.rollouts.resolve_nodes(wish.nodes),
        )

    def _only_model(self) -> str:
        wanted = [s.wish.model_id for s in self.node.rollouts.states() if s.is_wanted]
        if len(wanted) == 1:
            return wanted[0]
        if not wanted:
            raise RefusedError(
                "nothing is deployed by this node; `skippyctl status` says which node "
                "coordinates what it takes part in"
            )
        raise RefusedError(
            f"name the model to withdraw: deployed here are {', '.join(wanted)}"
        )

    async def _withdraw(self, model_id: str) -> None:
        try:
            await self.node.rollouts.withdraw(model_id)
        except SkippyError as error:
            # Somebody else was quicker, or the disk is full: the watcher is told.
            self._end(model_id, Step.FAILED, str(error), ExitCode(error.exit_code))
        else:
            self._end(model_id, Step.WITHDRAW, f"{model_id} is withdrawn")

    def _tell_deployed(self, model_id: str) -> None:
        route = self.node.routes.route_of(model_id)
        if route is not None:
            text = f"{route.run_id}: published at {route.openai_base_url} already"
            self._end(model_id, Step.PUBLISH, text)

    def _tell_dry_run(self, model_id: str, planned: PlannedRun) -> None:
        assert planned.explained is not None
        summary = self.node.rollouts.parts.in_words(plan_summary(planned.explained))
        self._log.add(
            Step.PLAN,
            f"dry run, nothing was done: {summary}",
            model_id=model_id,
            at_unix_ms=read_instant().unix_ms,
            is_dry_run=True,
        )

    def _end(
        self, model_id: str, step: Step, message: str, code: ExitCode = ExitCode.DONE
    ) -> None:
        event = self._log.add(
            step, message, model_id=model_id, at_unix_ms=read_instant().unix_ms
        )
        self._endings[event.sequence] = code
        while len(self._endings) > ENDINGS_KEPT:
            del self._endings[min(self._endings)]

    def _document(self, event: RolloutEvent) -> schema.Event:
        code = self._exit_code(event)
        return schema.Event(
            sequence=event.sequence,
            unix_ms=event.at_unix_ms,
            event=event.step.value,
            message=event.message,
            model_id=event.model_id,
            stage_id=event.stage_id,
            node_id=event.node_id,
            done=event.done,
            total=event.total,
            is_final=code is not None,
            exit_code=None if code is None else int(code),
            is_dry_run=event.is_dry_run,
        )

    def _exit_code(self, event: RolloutEvent) -> ExitCode | None:
        if (code := self._endings.get(event.sequence)) is not None:
            return code
        if event.step is Step.PUBLISH:
            return ExitCode.DONE
        is_last = event.step is Step.FAILED and not self._is_followed(event)
        return ExitCode.FAILED if is_last else None

    def _is_followed(self, event: RolloutEvent) -> bool:
        """Whether attempts go on: a failure is an end only where nothing is wanted."""
        states = self.node.rollouts.states()
        if any(s.is_wanted and s.wish.model_id == event.model_id for s in states):
            return True
        later = self._log.since(event.sequence, event.model_id)
        return not all(each.is_dry_run for each in later)
