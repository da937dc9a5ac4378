"""How far nodes are from each other, measured between their stages' own addresses."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import trio

from skippyd.coordination.ports import NodeUnreachableError


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skippyd.coordination.ports import Nodes
    from skippyd.ids import NodeId

MEASURE_SECONDS = 5.0
"""A node that measures for longer is planned without its word."""

US_PER_MS = 1_000


async def measured_latencies_us(
    nodes: Nodes, node_ids: Sequence[NodeId]
) -> Mapping[NodeId, int]:
    """Let every node measure the way to the others; return each one's distance.

    A node's distance is the median of the ways from it and to it, in microseconds. A
    node whose ways nobody could measure is left out: the planner counts it with the
    largest distance known.
    """
    ways: dict[NodeId, list[float]] = {node_id: [] for node_id in node_ids}
    if len(ways) < 2:  # noqa: PLR2004 - a way has two ends
        return {}

    async def measure(source: NodeId) -> None:
        targets = [node_id for node_id in node_ids if node_id != source]
        with trio.move_on_after(MEASURE_SECONDS):
            found = await _measured(nodes, source, targets)
            for target, latency_ms in found.items():
                if target in ways:
                    ways[source].append(latency_ms)
                    ways[target].append(latency_ms)

    async with trio.open_nursery() as nursery:
        for node_id in ways:
            nursery.start_soon(measure, node_id)
    return {
        node_id: round(statistics.median(found) * US_PER_MS)
        for node_id, found in ways.items()
        if found
    }


async def _measured(
    nodes: Nodes, source: NodeId, targets: Sequence[NodeId]
) -> Mapping[NodeId, float]:
    try:
        return await nodes.measure_latency_ms(source, targets)
    except NodeUnreachableError:
        # The probe will say so with its reason; a plan needs no distance of it.
        return {}
