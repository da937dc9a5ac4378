"""A campaign whose requests are answered well by everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.coordinator.campaign import Campaign
from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    ChainProved,
    PeerChanged,
    PeerLeaving,
    PlanMade,
    PlanMissing,
    ProofFailed,
    PublishRoute,
    Replied,
    Report,
    RequestFailed,
    RequestPlan,
    RoutePublished,
    RouteWithdrawn,
    Send,
    StageLost,
    Start,
    Step,
    TimePassed,
    Withdraw,
)
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    LoadStage,
    PreparationState,
    PreparationStatus,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    Reply,
    Request,
    StageReady,
    StageStopped,
    StopStage,
)
from skippyd.core.coordinator.retrying import RETRY_TICK_MS
from skippyd.core.coordinator.verdict import Accepted
from skippyd.ids import CoordinatorId, NodeId, UnixMs
from support.claims import ready_status
from support.cluster import plan_over


if TYPE_CHECKING:
    from skippyd.core.coordinator.run import CampaignPlan, Run


A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
PLAN = plan_over("a", "b", "c")


class Rig:
    """A campaign of node a whose requests are answered well by everybody."""

    def __init__(self) -> None:
        self.campaign = Campaign(coordinator_id=CoordinatorId("a"))
        self.now = Instant(UnixMs(1_000), 1_000)

    def tell(
        self,
        event: Start
        | Withdraw
        | PlanMade
        | PlanMissing
        | Replied
        | RequestFailed
        | ChainProved
        | ProofFailed
        | RoutePublished
        | RouteWithdrawn
        | StageLost
        | PeerChanged
        | PeerLeaving
        | TimePassed,
        jitter: float = 0.5,
    ) -> tuple[CampaignEffect, ...]:
        return self.campaign.offer(event, self.now, jitter)

    def wait(self, duration_ms: int) -> tuple[CampaignEffect, ...]:
        self.now = self.now.later(duration_ms)
        return self.tell(TimePassed())

    def serve(self, plan: CampaignPlan = PLAN) -> Run:
        """Start and answer everything until the route is published."""
        self.tell(Start())
        return self.follow(plan)

    def follow_reply(self, effect: Send) -> None:
        """Answer a request well, and what follows from that until a load is wanted."""
        reply = good_reply(effect.request)
        for each in self.tell(Replied(effect.node_id, effect.request, reply)):
            if isinstance(each, Send) and not isinstance(each.request, LoadStage):
                self.follow_reply(each)

    def follow(self, plan: CampaignPlan = PLAN) -> Run:
        """Give the plan that was asked for and answer everything."""
        pending = list(self.tell(PlanMade(plan)))
        while pending:
            effect = pending.pop(0)
            match effect:
                case Send(node_id, request):
                    reply = good_reply(request)
                    pending += self.tell(Replied(node_id, request, reply))
                case PublishRoute(run):
                    pending += self.tell(RoutePublished(run.run_id))
                case Report(Step.PROVE):
                    attempt = self.campaign.attempt
                    assert attempt is not None
                    pending += self.tell(ChainProved(attempt.run.run_id))
                case _:
                    pass
        serving = self.campaign.serving
        assert serving is not None
        return serving.run

    def fail_probe(self, jitter: float = 0.5) -> int:
        """Start an attempt and let its probes fail; return the back-off."""
        for effect in self.tell(PlanMade(PLAN)):
            if isinstance(effect, Send):
                self.tell(
                    RequestFailed(effect.node_id, effect.request, "unreachable"), jitter
                )
        deadline = self.campaign.next_deadline()
        assert deadline is not None
        return deadline - self.now.boottime_ms


def good_reply(request: Request) -> Reply:
    match request:
        case ProbeClaim(claim):
            return ProbeAnswer(
                verdict=Accepted(claim), fenced_runs=(), instance_id="store"
            )
        case ClaimCoordinator(claim):
            return ClaimAnswer(verdict=Accepted(claim), instance_id="store")
        case PrepareStage(load):
            return PreparationStatus(stage=load.stage, state=PreparationState.AVAILABLE)
        case LoadStage():
            return StageReady(ready_status(request))
        case _:
            return StageStopped(request.stage)


def plans(effects: tuple[CampaignEffect, ...]) -> list[RequestPlan]:
    return [effect for effect in effects if isinstance(effect, RequestPlan)]


def sent(effects: tuple[CampaignEffect, ...]) -> list[tuple[NodeId, type]]:
    return [(e.node_id, type(e.request)) for e in effects if isinstance(e, Send)]


def messages(effects: tuple[CampaignEffect, ...]) -> list[str]:
    return [effect.message for effect in effects if isinstance(effect, Report)]


def stops(*nodes: NodeId) -> list[tuple[NodeId, type]]:
    return [(node_id, StopStage) for node_id in nodes]


def is_wanted_again(rig: Rig) -> bool:
    return bool(plans(rig.wait(2 * RETRY_TICK_MS)))
