"""What happens to a node and what it must do: events and effects of `control`."""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.memory import PersistFence, PersistQuarantine
from skippyd.core.coordinator.messages import (
    LoadStage,
    Origin,
    PreparationState,
    Reply,
    Request,
    StageStatus,
)


@attrs.frozen(kw_only=True)
class Received:
    """A request came in; `request_id` is the shell's, unique among open requests."""

    request_id: int
    request: Request
    origin: Origin


@attrs.frozen
class StageBecameReady:
    """A started stage passed its readiness probe and says `status` about itself."""

    load: LoadStage
    status: StageStatus


@attrs.frozen
class StageEnded:
    """A stage's process is reaped and its memory free, asked for or not."""

    load: LoadStage
    detail: str = ""


@attrs.frozen(kw_only=True)
class PreparationMoved:
    """A preparation reached a new state."""

    load: LoadStage
    state: PreparationState
    error: str = ""


@attrs.frozen
class TimePassed:
    """`next_deadline()` was reached."""


ControlEvent = Received | StageBecameReady | StageEnded | PreparationMoved | TimePassed


@attrs.frozen
class StartStage:
    """Start the stage's process; report `StageBecameReady` or `StageEnded`."""

    load: LoadStage


@attrs.frozen
class ShutDownStage:
    """End the stage's process now, without waiting; report `StageEnded` when reaped."""

    load: LoadStage
    reason: str


@attrs.frozen
class StartPreparation:
    """Fetch and check what the load needs; report `PreparationMoved`."""

    load: LoadStage


@attrs.frozen
class CancelPreparation:
    """End a preparation; it is forgotten already, nothing is to be reported."""

    load: LoadStage
    reason: str


@attrs.frozen
class Answer:
    """Send the reply to an open request; each is answered exactly once."""

    request_id: int
    reply: Reply


ControlEffect = (
    PersistFence
    | PersistQuarantine
    | StartStage
    | ShutDownStage
    | StartPreparation
    | CancelPreparation
    | Answer
)
