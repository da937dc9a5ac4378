"""A stage side to ask, and ways to read its effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.core.coordinator.control import StageControl
from skippyd.core.coordinator.control_effects import (
    Answer,
    ControlEffect,
    Received,
    StageBecameReady,
    StageEnded,
)
from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.memory import (
    FenceSnapshot,
)
from skippyd.core.coordinator.messages import (
    ClaimCoordinator,
    LoadFailed,
    LoadStage,
    Origin,
    Reply,
    Request,
    StageState,
)
from skippyd.ids import UnixMs
from support.claims import (
    claim,
    load_of,
    ready_status,
)


if TYPE_CHECKING:
    from skippyd.core.coordinator.reasons import LoadRefusalReason


START = Instant(UnixMs(1_000), 1_000)


@attrs.define
class Node:
    """A stage side under test; numbers its requests and keeps its clock."""

    control: StageControl
    now: Instant = START
    count: int = 0

    def ask(
        self, request: Request, origin: Origin = Origin.NETWORK
    ) -> tuple[ControlEffect, ...]:
        self.count += 1
        event = Received(request_id=self.count, request=request, origin=origin)
        return self.control.offer(event, self.now)

    def claim(self, term: int, lease: int = 100_000) -> tuple[ControlEffect, ...]:
        return self.ask(ClaimCoordinator(claim(term, lease=lease)))

    def start(self, term: int = 10) -> LoadStage:
        """Claim, load and become ready."""
        self.claim(term)
        load = load_of(claim(term))
        self.ask(load)
        self.ready(load)
        return load

    def ready(self, load: LoadStage) -> tuple[ControlEffect, ...]:
        return self.control.offer(StageBecameReady(load, ready_status(load)), self.now)

    def end(self, load: LoadStage, detail: str = "") -> tuple[ControlEffect, ...]:
        return self.control.offer(StageEnded(load, detail), self.now)

    @property
    def states(self) -> list[StageState]:
        return [stage.state for stage in self.control.snapshot()]


def new_node(*, is_quarantined: bool = False) -> Node:
    snapshot = FenceSnapshot(instance_id="store", is_quarantined=is_quarantined)
    return Node(StageControl(ClaimFence.restore(snapshot, START)))


def kinds(effects: tuple[ControlEffect, ...]) -> list[type]:
    return [type(effect) for effect in effects]


def replies(effects: tuple[ControlEffect, ...]) -> dict[int, Reply]:
    return {e.request_id: e.reply for e in effects if isinstance(e, Answer)}


def load_reason(reply: Reply) -> LoadRefusalReason:
    assert isinstance(reply, LoadFailed)
    return reply.refusal.reason
