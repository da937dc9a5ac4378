"""An attempt and short ways to answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.coordinator.attempt import Attempt
from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    Replied,
    RequestFailed,
    Send,
)
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    PreparationState,
    PreparationStatus,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    Reply,
    Request,
    StageReady,
)
from skippyd.core.coordinator.run import Run
from skippyd.core.coordinator.verdict import (
    Accepted,
    ClaimVerdict,
    FencedRun,
    Rejected,
)
from skippyd.ids import CoordinatorId, NodeId, Term, UnixMs
from support.claims import ready_status
from support.cluster import plan_over


if TYPE_CHECKING:
    from skippyd.core.coordinator.phases import (
        AttemptFailure,
    )
    from skippyd.core.coordinator.reasons import (
        RejectReason,
    )


NOW = Instant(UnixMs(0), 0)
A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
NODES = (A, B, C)


class Rig:
    """An attempt and short ways to answer it."""

    def __init__(
        self,
        *,
        may_replace: bool = False,
        lost: frozenset[NodeId] = frozenset(),
    ) -> None:
        self.run = Run(
            plan=plan_over(*NODES, may_replace=may_replace),
            coordinator_id=CoordinatorId("a"),
            term=Term(7),
            shutdown_generation=1,
        )
        self.attempt = Attempt(run=self.run, lost_nodes=lost)
        self.now = NOW
        self.loads = {s.node_id: self.run.load(s) for s in self.run.plan.stages}
        self.effects = self.attempt.begin(self.now)

    def reply(self, node_id: NodeId, request: Request, reply: Reply) -> None:
        self.effects = self.attempt.reply(Replied(node_id, request, reply), self.now)

    def fail(self, node_id: NodeId, request: Request) -> None:
        event = RequestFailed(node_id, request, "unreachable")
        self.effects = self.attempt.request_failed(event, self.now)

    def wait(self, duration_ms: int) -> None:
        self.now = self.now.later(duration_ms)
        self.effects = self.attempt.pass_time(self.now)

    @property
    def probe(self) -> ProbeClaim:
        return ProbeClaim(self.run.claim(self.now))

    @property
    def claim(self) -> ClaimCoordinator:
        return ClaimCoordinator(self.run.claim(self.now))

    def accept_probes(
        self, *runs: FencedRun, nodes: tuple[NodeId, ...] = NODES
    ) -> None:
        for node_id in nodes:
            answer = ProbeAnswer(
                verdict=Accepted(self.probe.claim),
                fenced_runs=runs,
                instance_id=f"store of {node_id}",
            )
            self.reply(node_id, self.probe, answer)

    def reject_probe(self, node_id: NodeId, reason: RejectReason) -> None:
        verdict = self.rejected(reason)
        answer = ProbeAnswer(verdict=verdict, fenced_runs=(), instance_id="")
        self.reply(node_id, self.probe, answer)

    def rejected(self, reason: RejectReason) -> Rejected:
        return Rejected(claim=self.probe.claim, reason=reason, current_term=Term(9))

    def prepared(
        self, node_id: NodeId, state: PreparationState = PreparationState.AVAILABLE
    ) -> None:
        load = self.loads[node_id]
        status = PreparationStatus(stage=load.stage, state=state, error="disk full")
        self.reply(node_id, PrepareStage(load), status)

    def answer_claim(self, node_id: NodeId, verdict: ClaimVerdict) -> None:
        answer = ClaimAnswer(verdict=verdict, instance_id=f"store of {node_id}")
        self.reply(node_id, self.claim, answer)

    def accept_claim(self, node_id: NodeId) -> None:
        self.answer_claim(node_id, Accepted(self.claim.claim))

    def to_preparing(self) -> Rig:
        self.accept_probes()
        return self

    def to_claiming(self) -> Rig:
        self.to_preparing()
        for node_id in NODES:
            self.prepared(node_id)
        return self

    def to_loading(self) -> Rig:
        self.to_claiming()
        for node_id in NODES:
            self.accept_claim(node_id)
        return self

    def to_proving(self) -> Rig:
        self.to_loading()
        for node_id in reversed(NODES):
            load = self.loads[node_id]
            self.reply(node_id, load, StageReady(ready_status(load)))
        return self

    def to_publishing(self) -> Rig:
        self.to_proving()
        self.effects = self.attempt.prove(self.now)
        return self

    @property
    def failure(self) -> AttemptFailure:
        assert self.attempt.failure is not None
        return self.attempt.failure


def sent(effects: tuple[CampaignEffect, ...]) -> list[tuple[NodeId, type]]:
    return [(e.node_id, type(e.request)) for e in effects if isinstance(e, Send)]


def to_all(kind: type) -> list[tuple[NodeId, type]]:
    return [(node_id, kind) for node_id in NODES]
