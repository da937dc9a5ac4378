"""What a rollout works with, and what it shows of itself."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Protocol

import attrs

from skippyd.coordination.node_words import in_words, known_names
from skippyd.coordination.rollout_runs import fresh_run_key
from skippyd.core.coordinator.serving import WITHDRAW_GRACE_MS


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.coordination.planning import Plans
    from skippyd.coordination.ports import Nodes
    from skippyd.coordination.rollout_events import EventLog
    from skippyd.coordination.rollout_wishes import CoordinatorMemory, Wish
    from skippyd.coordination.route import RouteTable
    from skippyd.coordination.route_announcing import RouteAnnouncer
    from skippyd.core.coordinator.campaign import Campaign
    from skippyd.core.coordinator.instant import Instant
    from skippyd.core.coordinator.run import Run
    from skippyd.ids import RunId

LOOK_SECONDS = 1.0
"""How often a coordinator looks at the reports of what it runs, besides all news."""

SETTLE_SECONDS = 8.0
"""How long a restarted coordinator waits for the others (skippy-facts 3.5)."""


def fresh_jitter() -> float:
    """A random number in [0, 1) that no other node draws alike."""
    return secrets.randbelow(1 << 53) / (1 << 53)


class ChainGuard(Protocol):
    """Says whether another coordinator's chain of a model is to be left alone."""

    async def reason_to_wait(self, wish: Wish) -> str | None:
        """Wait while a chain without its coordinator is healthy.

        Returns:
            Why no plan is to be made now; None when one may be.
        """
        ...


@attrs.frozen(kw_only=True)
class RolloutParts:
    """Everything the rollouts of a node share.

    Args:
        nodes: All nodes this one knows.
        plans: Makes plans.
        memory: The durable memory of this coordinator.
        routes: What this node follows.
        announcer: Tells other nodes of own routes.
        guard: Leaves other coordinators' healthy chains alone.
        log: What deployments report.
        clock: Reads both clocks.
        active_requests: Requests that use a run now, as far as this node sees.
        jitter: Draws a number in [0, 1).
        draw_key: Draws the secret of a run.
        look_s: How often reports are looked at besides all news, in seconds.
        settle_s: How long a restarted coordinator waits for the others, in seconds.
        withdraw_grace_ms: How long a broken run keeps its route.
    """

    nodes: Nodes
    plans: Plans
    memory: CoordinatorMemory
    routes: RouteTable
    announcer: RouteAnnouncer
    guard: ChainGuard
    log: EventLog
    clock: Callable[[], Instant]
    active_requests: Callable[[RunId], int]
    jitter: Callable[[], float] = fresh_jitter
    draw_key: Callable[[], str] = fresh_run_key
    look_s: float = LOOK_SECONDS
    settle_s: float = SETTLE_SECONDS
    withdraw_grace_ms: int = WITHDRAW_GRACE_MS

    def in_words(self, text: str) -> str:
        """Write the nodes of a text by their names."""
        return in_words(text, known_names(self.nodes))


@attrs.frozen(kw_only=True)
class RolloutState:
    """How far one model is on the node that coordinates it.

    Args:
        wish: What is wanted.
        is_wanted: Whether it still is.
        phase: idle, planning, serving, withdrawing, or the phase of the attempt.
        run: The run that is served or on its way.
        last_report: What was said last.
    """

    wish: Wish
    is_wanted: bool
    phase: str
    run: Run | None
    last_report: str


def state_of(
    campaign: Campaign, wish: Wish, is_wanted: bool, last_report: str
) -> RolloutState:
    """Describe how far a campaign is."""
    serving, attempt = campaign.serving, campaign.attempt
    run = None if serving is None else serving.run
    phase = "planning" if is_wanted else "idle"
    if serving is not None:
        phase = "withdrawing" if serving.is_withdrawing else "serving"
    elif attempt is not None:
        phase, run = attempt.phase.value, attempt.run
    return RolloutState(
        wish=wish,
        is_wanted=is_wanted,
        phase=phase,
        run=run,
        last_report=last_report,
    )
