"""Sends a campaign's requests, each in a task of its own, and brings the answers back."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import attrs

from skippyd.coordination.rollout_runs import RunBook, answer_timeout_s
from skippyd.coordination.rollout_wishes import CoordinatorFileError
from skippyd.core.coordinator.campaign_effects import Replied, RequestFailed
from skippyd.core.coordinator.messages import ClaimCoordinator, LoadStage, StageReady
from skippyd.errors import SkippyError


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from skippyd.coordination.ports import Nodes, StageRunSettings
    from skippyd.coordination.rollout_wishes import CoordinatorMemory
    from skippyd.core.coordinator.messages import Reply, Request
    from skippyd.core.coordinator.run import Run
    from skippyd.ids import NodeId, Term


@attrs.define(eq=False, kw_only=True)
class RequestSender:
    """The requests of one coordinator.

    Args:
        nodes: All nodes.
        memory: Where the highest own term is kept.
        book: Keys, ports and settings of the runs.
        spawn: Starts a task.
        offer: Takes what came of a request.
    """

    nodes: Nodes
    memory: CoordinatorMemory
    book: RunBook
    spawn: Callable[[Callable[[], Awaitable[None]]], None]
    offer: Callable[[Replied | RequestFailed], None]
    open_count: int = attrs.field(default=0, init=False)
    _term_trouble: str | None = attrs.field(default=None, init=False)

    async def persist_term(self, term: Term) -> None:
        """Make a term durable; while that fails, claims fail instead of leaving."""
        try:
            await self.memory.remember_term(term)
            self._term_trouble = None
        except CoordinatorFileError as error:
            self._term_trouble = str(error)

    def send(self, node_id: NodeId, request: Request, run: Run | None) -> None:
        """Begin to ask a node.

        Args:
            node_id: Whom.
            request: What.
            run: The run that is on its way.
        """
        settings = self.book.settings_of(request, run)
        if (reason := self._obstacle(request, settings)) is not None:
            self.offer(RequestFailed(node_id, request, reason))
            return
        timeout_s = answer_timeout_s(request, None if run is None else run.plan)
        self.open_count += 1
        ask = functools.partial(
            self.nodes.request, node_id, request, settings, timeout_s=timeout_s
        )
        self.spawn(functools.partial(self._ask, node_id, request, ask))

    def _obstacle(
        self, request: Request, settings: StageRunSettings | None
    ) -> str | None:
        if isinstance(request, ClaimCoordinator):
            return self._term_trouble
        if isinstance(request, LoadStage) and settings is None:
            return "the plan of this run is not known any more"
        return None

    async def _ask(
        self, node_id: NodeId, request: Request, ask: Callable[[], Awaitable[Reply]]
    ) -> None:
        event: Replied | RequestFailed
        try:
            reply = await ask()
            if isinstance(reply, StageReady):
                self.book.stage_ready(reply.status)
            event = Replied(node_id, request, reply)
        except SkippyError as error:
            event = RequestFailed(node_id, request, str(error))
        self.open_count -= 1
        self.offer(event)
