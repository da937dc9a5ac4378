"""Waiting for routes and events of nodes in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from skippyd.ids import NodeId
from support.async_cluster import MODEL, AsyncCluster, AsyncNode, wish_of_model


if TYPE_CHECKING:
    from skippyd.coordination.ports import Route
    from skippyd.coordination.rollout_events import RolloutEvent
    from skippyd.core.coordinator.campaign_effects import Step

A = NodeId("a")


async def published(node: AsyncNode, *, after_term: int = 0) -> Route:
    """Wait for the route of a newer run, as this node knows it."""
    with trio.fail_after(600):
        while True:
            changed = node.routes.changed()
            route = node.routes.route_of(MODEL)
            if route is not None and route.term > after_term:
                return route
            await changed.wait()


async def told(node: AsyncNode, step: Step, text: str = "") -> RolloutEvent:
    """Wait for an event of a coordinator."""
    sequence = 0
    with trio.fail_after(600):
        while True:
            for event in await node.log.newer(sequence):
                if event.step is step and text in event.message:
                    return event
                sequence = event.sequence


async def deployed(cluster: AsyncCluster, *names: str) -> Route:
    """Deploy on node a over all nodes, or the named ones; everybody knows the route."""
    node_ids = tuple(NodeId(name) for name in names)
    await cluster.nodes[A].rollouts.deploy(wish_of_model("a", node_ids=node_ids))
    for node in cluster.nodes.values():
        await published(node)
    return await published(cluster.nodes[A])
