"""What stories expect of replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.ghost import InvariantBrokenError
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    LoadFailed,
    PrepareFailed,
    ProbeAnswer,
    StopFailed,
)
from skippyd.core.coordinator.verdict import FencingInProgress, Rejected


if TYPE_CHECKING:
    from skippyd.core.coordinator.messages import Reply


def expect(condition: bool, text: str) -> None:
    """Require what the story is about."""
    if not condition:
        raise InvariantBrokenError("story", text)


def is_accepted(reply: Reply | None) -> bool:
    """Say whether a claim was accepted."""
    return isinstance(reply, ClaimAnswer) and not isinstance(
        reply.verdict, Rejected | FencingInProgress
    )


def is_refused(reply: Reply | None) -> bool:
    """Say whether anything was refused."""
    if isinstance(reply, ClaimAnswer | ProbeAnswer):
        return isinstance(reply.verdict, Rejected)
    return isinstance(reply, LoadFailed | StopFailed | PrepareFailed)
