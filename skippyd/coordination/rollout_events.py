"""What deployments report, kept for a while so that a watcher can resume."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs
import trio


if TYPE_CHECKING:
    from skippyd.core.coordinator.campaign_effects import Step
    from skippyd.ids import NodeId

KEPT_EVENTS = 1_000
EVENT_SCHEMA = "skippy.event/1"


@attrs.frozen(kw_only=True)
class RolloutEvent:
    """One line of a deployment's story (contract, `skippy.event/1`).

    Args:
        sequence: Grows by one with each event of this node since its start.
        at_unix_ms: When it happened.
        model_id: The model it is about.
        step: The step of the deployment.
        message: What happened, for people.
        node_id: The node it is about.
        stage_id: The stage it is about.
        done: Bytes done, of a step that takes long.
        total: Bytes in all.
        is_dry_run: Whether it only says what would be done.
    """

    sequence: int
    at_unix_ms: int
    model_id: str
    step: Step
    message: str
    node_id: NodeId | None = None
    stage_id: str | None = None
    done: int | None = None
    total: int | None = None
    is_dry_run: bool = False


@attrs.define(eq=False)
class EventLog:
    """The last events of all deployments of this node, oldest first."""

    _events: deque[RolloutEvent] = attrs.field(
        factory=lambda: deque(maxlen=KEPT_EVENTS), init=False
    )
    _last: int = attrs.field(default=0, init=False)
    _grown: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest event, 0 before the first."""
        return self._last

    def add(
        self,
        step: Step,
        message: str,
        *,
        model_id: str,
        at_unix_ms: int,
        node_id: NodeId | None = None,
        stage_id: str | None = None,
        progress: tuple[int, int] | None = None,
        is_dry_run: bool = False,
    ) -> RolloutEvent:
        """Keep an event and wake everybody who follows."""
        self._last += 1
        event = RolloutEvent(
            sequence=self._last,
            at_unix_ms=at_unix_ms,
            model_id=model_id,
            step=step,
            message=message,
            node_id=node_id,
            stage_id=stage_id,
            done=None if progress is None else progress[0],
            total=None if progress is None else progress[1],
            is_dry_run=is_dry_run,
        )
        self._events.append(event)
        self._grown.set()
        self._grown = trio.Event()
        return event

    def since(
        self, sequence: int, model_id: str | None = None
    ) -> tuple[RolloutEvent, ...]:
        """The kept events after a sequence number, of one model or of all."""
        return tuple(
            event
            for event in self._events
            if event.sequence > sequence and model_id in {None, event.model_id}
        )

    async def newer(
        self, sequence: int = 0, model_id: str | None = None
    ) -> tuple[RolloutEvent, ...]:
        """Wait for events after a sequence number; return all that are kept.

        A watcher asks again with the last sequence it has got. One that falls behind
        what is kept misses the oldest; it sees that by the sequence numbers.
        """
        while True:
            grown = self._grown
            if events := self.since(sequence, model_id):
                return events
            sequence = max(sequence, self._last)
            await grown.wait()
