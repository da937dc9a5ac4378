"""Nodes that only report and have given distances: what a planner needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.ports import (
    NodeChanged,
    NodeReport,
    NodeUnreachableError,
    PeerInfo,
    Route,
    StageRunSettings,
)


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skippyd.core.coordinator.messages import Reply, Request
    from skippyd.ids import NodeId


@attrs.define(eq=False)
class FixedNodes:
    """Implements `Nodes`; nobody answers requests."""

    own_id: NodeId
    known: dict[NodeId, NodeReport]
    latencies_ms: Mapping[NodeId, float]

    def peers(self) -> tuple[PeerInfo, ...]:
        """See `Nodes`."""
        return ()

    def reports(self) -> Mapping[NodeId, NodeReport]:
        """See `Nodes`."""
        return self.known

    async def request(
        self,
        node_id: NodeId,
        request: Request,
        settings: StageRunSettings | None = None,
        *,
        timeout_s: float,
    ) -> Reply:
        """See `Nodes`."""
        raise NodeUnreachableError(f"{node_id} answers nothing")

    async def measure_latency_ms(
        self, node_id: NodeId, targets: Sequence[NodeId]
    ) -> Mapping[NodeId, float]:
        """See `Nodes`; a way is as long as its longer end."""
        await trio.lowlevel.checkpoint()
        known = self.latencies_ms
        if not known:
            return {}
        return {target: max(known[target], known[node_id]) for target in targets}

    async def announce_route(
        self, node_id: NodeId, route: Route | None, model_id: str
    ) -> None:
        """See `Nodes`."""
        await trio.lowlevel.checkpoint()

    def subscribe(self) -> trio.MemoryReceiveChannel[NodeChanged]:
        """See `Nodes`."""
        return trio.open_memory_channel[NodeChanged](1)[1]
