"""Majority of the planned stages, and the tally of a round of answers."""

from __future__ import annotations

import attrs

from skippyd.ids import ModelId, NodeId


def quorum(planned_stage_count: int) -> int:
    """Return how many of the planned stages must accept before anything loads.

    Two majorities of one planned set always share a stage. For different sets P and
    Q that holds only if quorum(|P|) + quorum(|Q|) > |P u Q|.
    """
    return planned_stage_count // 2 + 1


@attrs.define
class Tally:
    """Answers of one round: each planned node accepts, refuses with a text, or is silent."""

    planned: tuple[NodeId, ...]
    _accepts: set[NodeId] = attrs.field(factory=set, init=False)
    _refusals: dict[NodeId, str] = attrs.field(factory=dict, init=False)

    def accept(self, node_id: NodeId) -> None:
        """Count an accept; it replaces an earlier refusal (a late or repeated answer)."""
        if node_id in self.planned:
            self._refusals.pop(node_id, None)
            self._accepts.add(node_id)

    def refuse(self, node_id: NodeId, text: str) -> None:
        """Count a refusal or a failed request; it replaces an earlier accept."""
        if node_id in self.planned:
            self._accepts.discard(node_id)
            self._refusals[node_id] = text

    @property
    def has_quorum(self) -> bool:
        """Whether a majority of the planned stages accepted."""
        return len(self._accepts) >= quorum(len(self.planned))

    @property
    def is_complete(self) -> bool:
        """Whether every planned stage answered or failed to."""
        return len(self._accepts) + len(self._refusals) == len(self.planned)

    @property
    def are_all_accepted(self) -> bool:
        """Whether every planned stage accepted: each of them must load."""
        return len(self._accepts) == len(self.planned)

    def has_accepted(self, node_id: NodeId) -> bool:
        """Say whether this stage accepted."""
        return node_id in self._accepts

    @property
    def silent(self) -> tuple[NodeId, ...]:
        """Planned stages that have not answered, in planned order."""
        answered = self._accepts | self._refusals.keys()
        return tuple(node_id for node_id in self.planned if node_id not in answered)

    def failure_text(self, verb: str, model_id: ModelId) -> str:
        """Spell a missed quorum out (skippy-facts 3.4), naming every missing stage."""
        missing = [
            f"{node_id}: {self._refusals.get(node_id, 'no answer')}"
            for node_id in self.planned
            if node_id not in self._accepts
        ]
        return (
            f"coordinator {verb} for {model_id} accepted by {len(self._accepts)}/"
            f"{len(self.planned)} planned stage(s), need "
            f"{quorum(len(self.planned))}: {'; '.join(missing)}"
        )
