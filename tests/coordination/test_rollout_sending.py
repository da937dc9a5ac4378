"""Requests of a campaign: none leaves that must not, each brings one answer back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from skippyd.coordination.rollout_runs import RunBook
from skippyd.coordination.rollout_sending import RequestSender
from skippyd.core.coordinator.campaign_effects import Replied, RequestFailed
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import ClaimAnswer, ClaimCoordinator
from skippyd.core.coordinator.run import Run
from skippyd.ids import CoordinatorId, NodeId, Term, UnixMs
from support.async_cluster import AsyncCluster, running_cluster
from support.async_wire import MemoryInMemory
from support.rollout_plans import PLANNED


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trio.testing import MockClock

A, B = NodeId("a"), NodeId("b")
RUN = Run(
    plan=PLANNED.campaign_plan,
    coordinator_id=CoordinatorId("a"),
    term=Term(1_700_000_000_000_000_000),
    shutdown_generation=1,
)


class Sent:
    """A sender, and what came of its requests."""

    def __init__(self, cluster: AsyncCluster) -> None:
        self.came: list[Replied | RequestFailed] = []
        self.memory = MemoryInMemory()
        book = RunBook()
        book.plan_made(PLANNED)
        self.sender = RequestSender(
            nodes=cluster.nodes[A],
            memory=self.memory,
            book=book,
            spawn=self._spawn,
            offer=self.came.append,
        )
        self._nursery = cluster.nursery

    def _spawn(self, task: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(task)

    def claim(self, node_id: NodeId) -> None:
        now = Instant(UnixMs(1_700_000_000_000), 1)
        self.sender.send(node_id, ClaimCoordinator(RUN.claim(now)), RUN)


async def test_an_answer_comes_back_with_its_request(autojump_clock: MockClock) -> None:
    async with running_cluster("a", "b") as cluster:
        sent = Sent(cluster)
        sent.claim(B)
        assert sent.sender.open_count == 1
        await trio.sleep(1)
        (answer,) = sent.came
        assert isinstance(answer, Replied)
        assert isinstance(answer.reply, ClaimAnswer)
        assert (answer.node_id, sent.sender.open_count) == (B, 0)


async def test_a_node_that_cannot_be_asked_is_a_failed_request(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        sent = Sent(cluster)
        cluster.nodes[B].crash()
        sent.claim(B)
        await trio.sleep(30)
        (failed,) = sent.came
        assert isinstance(failed, RequestFailed)
        assert "b is down" in failed.reason


async def test_no_claim_leaves_while_its_term_is_not_durable(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        sent = Sent(cluster)
        sent.memory.is_full = True
        await sent.sender.persist_term(RUN.term)
        sent.claim(B)
        (failed,) = sent.came
        assert isinstance(failed, RequestFailed)
        assert failed.reason == "the disk is full"
        sent.memory.is_full = False
        await sent.sender.persist_term(RUN.term)
        sent.claim(B)
        await trio.sleep(1)
        assert isinstance(sent.came[-1], Replied)


async def test_a_load_of_a_forgotten_run_does_not_leave(
    autojump_clock: MockClock,
) -> None:
    async with running_cluster("a", "b") as cluster:
        sent = Sent(cluster)
        sent.sender.send(B, RUN.load(RUN.plan.stages[1]), None)
        (failed,) = sent.came
        assert isinstance(failed, RequestFailed)
        assert "not known any more" in failed.reason
