"""Whole models that this node serves alone, without a coordinator and its fence.

Such a load has no term. The rules take it from operators of this machine only, never
while a claim holds the model here; a claim that is accepted later ends it.
"""

from __future__ import annotations

import functools
import secrets
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.admin import schema
from skippyd.coordination.admission import descriptor_text
from skippyd.coordination.rollout_runs import fresh_run_key
from skippyd.coordination.rollout_wishes import Wish
from skippyd.core.coordinator.messages import (
    LoadFailed,
    LoadStage,
    Origin,
    StageKey,
)
from skippyd.core.coordinator.reasons import LoadRefusalReason
from skippyd.errors import RefusedError, SkippyError
from skippyd.ids import RunId, StageId, Term, TopologyId


if TYPE_CHECKING:
    from skippyd.admin import wishes
    from skippyd.coordination.planning import PlannedRun
    from skippyd.coordination.ports import ModelEntry, StageRunSettings
    from skippyd.core.coordinator.messages import Reply
    from skippyd.daemon.node import Node

PATIENCE_SECONDS = 90.0
"""How long an operator's command waits; the load itself goes on."""

GENERATION_OF_FIRST_LOAD = 1


class LocalLoadError(SkippyError):
    """A local stage ended before it was ready; the message says why."""


@attrs.define(eq=False)
class LocalLoads:
    """Loads whole models here.

    Args:
        node: The node.
        nursery: Where a load goes on when its operator has gone.
    """

    node: Node
    nursery: trio.Nursery

    async def load(self, wish: wishes.LoadLocal) -> schema.Done:
        """Serve a model on this node alone.

        Returns:
            Where it is served, or that it loads still.

        Raises:
            RefusedError: There is no such model, it does not fit, or a claim holds it.
            LocalLoadError: Its stage ended before it was ready.
        """
        entry = await self.node.inventory.resolve(wish.model)
        planned = await self.node.rollouts.dry_run(self._wish(entry, wish))
        settings = _settings_of(planned, StageId(f"local-{entry.name}"))
        load = await self._load_of(planned, settings)
        replies: trio.MemorySendChannel[Reply | SkippyError]
        replies, answers = trio.open_memory_channel(1)
        self.nursery.start_soon(functools.partial(self._ask, load, settings, replies))
        with trio.move_on_after(PATIENCE_SECONDS):
            return self._said(load, await answers.receive())
        return schema.Done(
            message=f"{load.stage.stage_id} loads still; `skippyctl status` shows it"
        )

    def _wish(self, entry: ModelEntry, wish: wishes.LoadLocal) -> Wish:
        assert entry.sha256 is not None
        own_id = self.node.identity.node_id
        return Wish(
            model_id=entry.name,
            model_sha256=entry.sha256,
            deployed_by=own_id,
            context=wish.context,
            lanes=wish.lanes,
            node_ids=(own_id,),
        )

    async def _load_of(
        self, planned: PlannedRun, settings: StageRunSettings
    ) -> LoadStage:
        """The load of the one stage of a plan, without a term."""
        plan, place = planned.campaign_plan, settings.stages[0]
        run_id = f"local-{secrets.token_hex(4)}"
        load = LoadStage(
            key=plan.key,
            stage=StageKey(
                topology_id=TopologyId(f"topology-{run_id}"),
                run_id=RunId(run_id),
                stage_id=StageId(place.stage_id),
            ),
            coordinator_term=Term(0),
            coordinator_id=None,
            shutdown_generation=GENERATION_OF_FIRST_LOAD,
            stage_index=place.stage_index,
            layer_start=place.layer_start,
            layer_end=place.layer_end,
            source_model_sha256=settings.model_sha256,
            source_model_bytes=plan.stages[0].source_model_bytes,
            admission="",
        )
        part = await self.node.stages.parts.open(load, settings)
        return attrs.evolve(load, admission=descriptor_text(part.descriptor))

    async def _ask(
        self,
        load: LoadStage,
        settings: StageRunSettings,
        replies: trio.MemorySendChannel[Reply | SkippyError],
    ) -> None:
        reply: Reply | SkippyError
        try:
            reply = await self.node.stages.request(
                load, origin=Origin.ADMIN, settings=settings
            )
        except SkippyError as error:
            # The node is stopping, or busy: for the operator, not for the daemon.
            reply = error
        replies.send_nowait(reply)

    def _said(self, load: LoadStage, reply: Reply | SkippyError) -> schema.Done:
        if isinstance(reply, SkippyError):
            raise reply
        stage_id = load.stage.stage_id
        if isinstance(reply, LoadFailed):
            text = f"{stage_id}: {reply.refusal.text}"
            if reply.refusal.reason is LoadRefusalReason.START_FAILED:
                raise LocalLoadError(text)
            raise RefusedError(text)
        return schema.Done(
            message=f"{stage_id} serves {load.key.model_id} at "
            f"{self._openai_base_url(load)}; `skippyctl stop {stage_id}` ends it"
        )

    def _openai_base_url(self, load: LoadStage) -> str | None:
        runs = self.node.stages.stage_runs()
        return next((run.openai_base_url for run in runs if run.load == load), None)


def _settings_of(planned: PlannedRun, stage_id: StageId) -> StageRunSettings:
    """What the one stage is told; its name is not one of a chain's."""
    (stage,) = planned.settings.stages
    return attrs.evolve(
        planned.settings,
        run_key=fresh_run_key(),
        serves_openai=True,
        stages=(attrs.evolve(stage, stage_id=stage_id),),
    )
