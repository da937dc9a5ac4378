"""Tells every node where this coordinator's models are served; says it again on return.

One task a node sends only the newest word on each model, so words cannot overtake
each other, and a node that was away gets what holds now. All of it is repeated from
time to time.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.ports import NodeUnreachableError


if TYPE_CHECKING:
    from skippyd.coordination.ports import Nodes, Route
    from skippyd.ids import NodeId

logger = logging.getLogger("skippyd.routes")

RETRY_SECONDS = 5.0
REPEAT_SECONDS = 30.0
"""A node that restarted faster than anybody noticed has forgotten the routes."""


@attrs.define(eq=False)
class _Listener:
    """What one node has still to be told."""

    pending: dict[str, Route | None] = attrs.Factory(dict)
    woken: trio.Event = attrs.Factory(trio.Event)


@attrs.define(eq=False)
class RouteAnnouncer:
    """Announces own routes; `run` must be running.

    Args:
        nodes: All nodes this one knows.
    """

    nodes: Nodes
    _said: dict[str, Route | None] = attrs.field(factory=dict, init=False)
    _listeners: dict[NodeId, _Listener] = attrs.field(factory=dict, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def say(self, model_id: str, route: Route | None) -> None:
        """Tell every node, now or when it comes back."""
        self._said[model_id] = route
        for peer in self.nodes.peers():
            self._tell(peer.node_id, {model_id: route})

    def node_returned(self, node_id: NodeId) -> None:
        """Tell a node that came, or came back, everything that holds."""
        if node_id != self.nodes.own_id and self._said:
            self._tell(node_id, dict(self._said))

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Send what is said until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for node_id, listener in self._listeners.items():
                nursery.start_soon(self._send_to, node_id, listener)
            task_status.started()
            while True:
                await trio.sleep(REPEAT_SECONDS)
                for node_id in self.nodes.reports():
                    self.node_returned(node_id)

    def _tell(self, node_id: NodeId, words: dict[str, Route | None]) -> None:
        listener = self._listeners.get(node_id)
        if listener is None:
            listener = self._listeners[node_id] = _Listener()
            if self._nursery is not None:
                self._nursery.start_soon(self._send_to, node_id, listener)
        listener.pending.update(words)
        listener.woken.set()

    async def _send_to(self, node_id: NodeId, listener: _Listener) -> None:
        while True:
            # A node that is away is told when it comes back.
            is_there = node_id in self.nodes.reports()
            retry_s = RETRY_SECONDS if listener.pending and is_there else math.inf
            with trio.move_on_after(retry_s):
                await listener.woken.wait()
            listener.woken = trio.Event()
            while listener.pending:
                model_id, route = next(iter(listener.pending.items()))
                if not await self._sent(node_id, model_id, route):
                    break
                if listener.pending.get(model_id) is route:
                    del listener.pending[model_id]

    async def _sent(self, node_id: NodeId, model_id: str, route: Route | None) -> bool:
        try:
            await self.nodes.announce_route(node_id, route, model_id)
        except NodeUnreachableError as error:
            logger.debug("route of %s not told to %s: %s", model_id, node_id, error)
            return False
        return True
