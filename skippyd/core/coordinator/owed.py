"""Stops that could not be delivered, kept until their nodes come back."""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.campaign_effects import Send
from skippyd.core.coordinator.messages import StopStage
from skippyd.ids import NodeId


MAX_OWED_PER_NODE = 8
"""Older runs of a node are fenced by newer claims anyway; the newest stops matter."""


@attrs.define
class OwedStops:
    """Undelivered stops by node: a stage cut off in a partition is not left behind."""

    _by_node: dict[NodeId, tuple[StopStage, ...]] = attrs.field(
        factory=dict, init=False
    )

    def owe(self, node_id: NodeId, stop: StopStage) -> None:
        """Remember a stop that did not reach its node."""
        others = [known for known in self._by_node.get(node_id, ()) if known != stop]
        self._by_node[node_id] = (*others, stop)[-MAX_OWED_PER_NODE:]

    def pay(self, node_id: NodeId) -> tuple[Send, ...]:
        """Send a node that is back what it missed, and forget it."""
        stops = self._by_node.pop(node_id, ())
        return tuple(Send(node_id, stop) for stop in stops)
