"""A campaign on a desk: a story says what its shell reports, and reads what it wants.

Three nodes n0 to n2; n0 is the campaign's own. Nothing happens by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from simulation.clocks import EPOCH_UNIX_MS
from simulation.plans import LAYERS_PER_STAGE, MODEL_KEY
from skippyd.core.coordinator.campaign import Campaign
from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    CampaignEvent,
    ChainProved,
    PlanMade,
    ProveChain,
    PublishRoute,
    Replied,
    RequestPlan,
    RoutePublished,
    Send,
    Start,
    TimePassed,
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
    StageReady,
    StageState,
    StageStatus,
)
from skippyd.core.coordinator.reasons import RejectReason
from skippyd.core.coordinator.run import CampaignPlan, PlannedStage
from skippyd.core.coordinator.verdict import Accepted, FencedRun, Rejected
from skippyd.ids import CoordinatorId, NodeId, StageId, Term, UnixMs


if TYPE_CHECKING:
    from skippyd.core.coordinator.claim import CoordinatorClaim
    from skippyd.core.coordinator.messages import Reply, Request


NODES = tuple(NodeId(f"n{index}") for index in range(3))

_T = TypeVar("_T")


def plan(*, may_replace: bool = False) -> CampaignPlan:
    """Return the plan of one stage on each node."""
    return CampaignPlan(
        key=MODEL_KEY,
        stages=tuple(
            PlannedStage(
                node_id=node_id,
                stage_id=StageId(f"stage-{index}"),
                stage_index=index,
                layer_start=index * LAYERS_PER_STAGE,
                layer_end=(index + 1) * LAYERS_PER_STAGE,
                admission=f"admission-{index}",
            )
            for index, node_id in enumerate(NODES)
        ),
        participant_set_hash="p",
        topology_hash="t",
        may_replace=may_replace,
    )


class Desk:
    """One campaign, its clock, and everything it ever wanted."""

    def __init__(self) -> None:
        self.campaign = Campaign(coordinator_id=CoordinatorId("n0"))
        self.now = Instant(UnixMs(EPOCH_UNIX_MS), 1_000_000)
        self.log: list[CampaignEffect] = []
        self.fresh: list[CampaignEffect] = []

    def tell(self, event: CampaignEvent) -> list[CampaignEffect]:
        """Report something; returns what the campaign wants because of it."""
        self.fresh = list(self.campaign.offer(event, self.now))
        self.log += self.fresh
        return self.fresh

    def wait(self, duration_ms: int) -> list[CampaignEffect]:
        """Let time pass at once."""
        self.now = self.now.later(duration_ms)
        return self.tell(TimePassed())

    def begin(self, *, may_replace: bool = False) -> None:
        """Start and hand the plan over."""
        self.tell(Start())
        self.tell(PlanMade(plan(may_replace=may_replace)))

    def sent(self, kind: type[_T]) -> list[tuple[NodeId, _T]]:
        """Return all requests of one kind that ever left."""
        return [
            (effect.node_id, effect.request)
            for effect in self.log
            if isinstance(effect, Send) and isinstance(effect.request, kind)
        ]

    def wanted(self, kind: type[_T]) -> list[_T]:
        """Return all effects of one kind."""
        return [effect for effect in self.log if isinstance(effect, kind)]

    def reply(self, node_id: NodeId, request: Request, reply: Reply) -> None:
        """Let a node answer."""
        self.tell(Replied(node_id, request, reply))

    def probes(
        self,
        *,
        refusing: tuple[NodeId, ...] = (),
        current_term: Term | None = None,
        ending: tuple[FencedRun, ...] = (),
    ) -> None:
        """Let every node answer the newest probe."""
        for node_id, request in self.sent(ProbeClaim)[-len(NODES) :]:
            is_refused = node_id in refusing
            refused = _rejected(request.claim, current_term)
            answer = ProbeAnswer(
                verdict=refused if is_refused else Accepted(request.claim),
                fenced_runs=() if is_refused else ending,
                instance_id=f"store-{node_id}",
            )
            self.reply(node_id, request, answer)

    def preparations(self, state: PreparationState = PreparationState.READY) -> None:
        """Let every node answer the newest preparation."""
        for node_id, request in self.sent(PrepareStage)[-len(NODES) :]:
            status = PreparationStatus(stage=request.load.stage, state=state)
            self.reply(node_id, request, status)

    def claims(
        self,
        *,
        refusing: tuple[NodeId, ...] = (),
        silent: tuple[NodeId, ...] = (),
        store: str = "store",
    ) -> None:
        """Let every node but the silent ones answer the newest claim."""
        for node_id, request in self.sent(ClaimCoordinator)[-len(NODES) :]:
            if node_id in silent:
                continue
            is_refused = node_id in refusing
            refused = _rejected(request.claim, Term(request.claim.term + 7))
            answer = ClaimAnswer(
                verdict=refused if is_refused else Accepted(request.claim),
                instance_id=f"{store}-{node_id}",
            )
            self.reply(node_id, request, answer)

    def next_load(self, *, admission: str | None = None) -> NodeId:
        """Let the newest load become ready, with an echo of its own if given."""
        node_id, load = self.sent(LoadStage)[-1]
        self.reply(node_id, load, StageReady(_status(load, admission)))
        return node_id

    def serve(self) -> None:
        """Go all the way to a published run."""
        if not self.wanted(RequestPlan):
            self.begin()
        self.probes()
        self.preparations()
        self.claims()
        for _ in NODES:
            self.next_load()
        run = self.wanted(ProveChain)[-1].run
        self.tell(ChainProved(run.run_id))
        if self.wanted(PublishRoute):
            self.tell(RoutePublished(run.run_id))


def _rejected(claim: CoordinatorClaim, current_term: Term | None) -> Rejected:
    return Rejected(
        claim=claim, reason=RejectReason.STALE_TERM, current_term=current_term
    )


def _status(load: LoadStage, admission: str | None) -> StageStatus:
    return StageStatus(
        key=load.key,
        stage=load.stage,
        state=StageState.READY,
        coordinator_term=load.coordinator_term,
        coordinator_id=load.coordinator_id,
        shutdown_generation=load.shutdown_generation,
        stage_index=load.stage_index,
        layer_start=load.layer_start,
        layer_end=load.layer_end,
        backend=load.backend,
        source_model_sha256=load.source_model_sha256,
        source_model_bytes=load.source_model_bytes,
        source_model_path=None,
        bind_addr="127.0.0.1:4100",
        admission=load.admission if admission is None else admission,
    )
