"""The nodes that the next plan does without, each for its reason."""

from __future__ import annotations

import attrs

from skippyd.ids import NodeId


@attrs.define
class AbsentNodes:
    """Who is not planned with.

    Args:
        lost: Unreachable; they are back when they are reachable.
        leaving: Draining: they take no stage, those they have are moved away.
        stopped: Their operator ended a stage of this model there; they are back when
            the model is deployed again.
        blamed: A failure was theirs; back by the next tick.
    """

    lost: set[NodeId] = attrs.field(factory=set, init=False)
    leaving: set[NodeId] = attrs.field(factory=set, init=False)
    stopped: set[NodeId] = attrs.field(factory=set, init=False)
    blamed: tuple[NodeId, ...] = attrs.field(default=(), init=False)

    @property
    def excluded(self) -> tuple[NodeId, ...]:
        """All of them, sorted."""
        return tuple(sorted(self.lost.union(self.leaving, self.stopped, self.blamed)))

    def come_back(self, node_id: NodeId) -> None:
        """Count a node in again that is reachable."""
        self.lost.discard(node_id)
        self.blamed = tuple(node for node in self.blamed if node != node_id)

    def defect(self, planned: tuple[NodeId, ...]) -> str | None:
        """Say what forbids a plan over these nodes, or None when nothing does."""
        for name, nodes in (
            ("lost", self.lost),
            ("leaving", self.leaving),
            ("stopped", self.stopped),
        ):
            if found := nodes.intersection(planned):
                return f"the plan counts on {name} nodes: {', '.join(sorted(found))}"
        return None
