"""A published run: renewals, loss, grace, drain."""

from __future__ import annotations

from skippyd.core.coordinator.campaign_effects import Send
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import ClaimCoordinator
from skippyd.core.coordinator.phases import RENEW_AFTER_MS
from skippyd.core.coordinator.run import Run
from skippyd.core.coordinator.serving import (
    DRAIN_TIMEOUT_MS,
    RENEW_RETRY_MS,
    WITHDRAW_GRACE_MS,
    Serving,
)
from skippyd.ids import CoordinatorId, NodeId, Term, UnixMs
from support.cluster import plan_over


NOW = Instant(UnixMs(0), 0)
RUN = Run(
    plan=plan_over("a", "b"),
    coordinator_id=CoordinatorId("a"),
    term=Term(1),
    shutdown_generation=1,
)


def test_it_renews_after_half_of_the_lease() -> None:
    serving = Serving(RUN, RENEW_AFTER_MS)
    due = NOW.later(RENEW_AFTER_MS)

    assert not serving.is_due(NOW.later(RENEW_AFTER_MS - 1))
    assert serving.is_due(due)
    assert serving.renew(due) == tuple(
        Send(NodeId(name), ClaimCoordinator(RUN.claim(due))) for name in "ab"
    )
    assert serving.next_deadline() == 2 * RENEW_AFTER_MS
    serving.renew_soon(due)
    assert serving.next_deadline() == RENEW_AFTER_MS + RENEW_RETRY_MS


def test_the_grace_begins_with_the_first_loss() -> None:
    serving = Serving(RUN, RENEW_AFTER_MS)
    states = [(serving.is_lost, serving.is_withdrawing)]

    serving.lose(NOW)
    serving.lose(NOW.later(5_000))
    states.append((serving.is_lost, serving.is_withdrawing))
    assert serving.next_deadline() == WITHDRAW_GRACE_MS == 75_000
    serving.withdraw(NOW.later(100_000))
    states.append((serving.is_lost, serving.is_withdrawing))

    assert serving.next_deadline() == 100_000 + DRAIN_TIMEOUT_MS
    assert states == [(False, False), (True, False), (True, True)]


def test_stops_go_from_the_first_stage_and_spare_the_nodes_of_a_newer_run() -> None:
    serving = Serving(RUN, RENEW_AFTER_MS)
    first, second = RUN.plan.stages

    assert serving.stops() == (
        Send(first.node_id, RUN.stop(first)),
        Send(second.node_id, RUN.stop(second)),
    )
    assert serving.stops(frozenset({NodeId("a")})) == serving.stops()[1:]
