"""Who coordinates."""

from __future__ import annotations

from itertools import permutations

from skippyd.core.coordinator.participants import Participant, canonical_coordinator
from skippyd.ids import NodeId


def node(name: str, vram_bytes: int) -> Participant:
    return Participant(node_id=NodeId(name), vram_bytes=vram_bytes)


def test_most_memory_coordinates_and_the_smaller_id_breaks_the_tie() -> None:
    nodes = [node("c", 80), node("b", 80), node("a", 24)]

    assert {canonical_coordinator(order) for order in permutations(nodes)} == {"b"}


def test_nobody_coordinates_nobody() -> None:
    assert canonical_coordinator([]) is None
