"""The nodes a plan counts on, and which of them coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.ids import NodeId


if TYPE_CHECKING:
    from collections.abc import Iterable


@attrs.frozen(kw_only=True)
class Participant:
    """A planned node with the capacity that the plan was made from.

    Sizes in bytes, `rtt_ms` 0 when unknown (skippy-facts 3.3).
    """

    node_id: NodeId
    vram_bytes: int
    cached_slice_bytes: int = 0
    missing_artifact_bytes: int = 0
    rtt_ms: int = 0
    is_artifact_transfer_supported: bool = False
    availability_score: int = 0


def canonical_coordinator(participants: Iterable[Participant]) -> NodeId | None:
    """Return the node that coordinates: most memory, then the smaller id.

    Every node finds the same one, the others stand by (skippy-facts 3.4). None when
    nobody takes part.
    """
    ranked = sorted(participants, key=lambda node: (-node.vram_bytes, node.node_id))
    return ranked[0].node_id if ranked else None
