"""The shell around a real `Campaign`, and the ghost of what it was told and did.

Planning, the canary token, the route and its draining are short stories of their own
time here. The ghost half keeps which answers really arrived, so that no claim, load
or route leaves without the ones it needs (M1, I8, I11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import attrs

from simulation.coordinators import Coordinator
from simulation.ghost import InvariantBrokenError
from simulation.occurrences import CampaignNews, CoordinatorWake, Token
from skippyd.core.coordinator.campaign import Campaign
from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    CampaignEvent,
    ChainProved,
    PeerChanged,
    PersistTerm,
    PlanMade,
    PlanMissing,
    ProofFailed,
    ProveChain,
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
    TimePassed,
    WithdrawRoute,
)
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    LoadStage,
    PreparationState,
    PreparationStatus,
    ProbeAnswer,
    ProbeClaim,
    StageReady,
)
from skippyd.core.coordinator.verdict import Accepted, Rejected, Superseded
from skippyd.ids import CoordinatorId, Term


if TYPE_CHECKING:
    from simulation.ghost import GhostProcess
    from simulation.node import Node
    from skippyd.core.coordinator.claim import CoordinatorClaim
    from skippyd.core.coordinator.messages import Reply, Request, StageStatus
    from skippyd.core.coordinator.run import Run
    from skippyd.core.coordinator.verdict import ClaimVerdict
    from skippyd.ids import RunId


TOKEN_EVERY_MS = 120
"""How often a served run answers a token; the frames are what I9 is about."""

NO_TERM = Term(0)


@attrs.define(eq=False)
class RunGhost:
    """The answers about one run that reached its coordinator."""

    planned: tuple[str, ...]
    would_accept: set[str] = attrs.field(factory=set)
    prepared: set[str] = attrs.field(factory=set)
    accepted: set[str] = attrs.field(factory=set)
    ready: set[str] = attrs.field(factory=set)
    is_proved: bool = False


@attrs.define(eq=False, kw_only=True)
class Campaigner(Coordinator):
    """A real coordinator at work."""

    campaign: Campaign = attrs.field(init=False)
    durable_term: Term = NO_TERM
    seen_term: int = 0
    claimed_terms: dict[int, str] = attrs.field(factory=dict)
    runs: dict[str, RunGhost] = attrs.field(factory=dict)
    published: Run | None = None
    rounds: int = 0
    rounds_at_calm: int = 0
    _news_at_ms: dict[int, int] = attrs.field(factory=dict)
    _wake_at_ms: int | None = None

    def home_restarted(self) -> None:
        """Begin with what lies on the disk: the highest term and the wish."""
        self.campaign = Campaign(
            coordinator_id=CoordinatorId(self.home.node_id),
            newest_term=self.durable_term,
        )
        self.tell_later(Start(), self.world.rng.randrange(1, 3_000))

    def home_crashed(self) -> None:
        """Lose the campaign and every answer."""
        super().home_crashed()
        self.runs.clear()
        self.seen_term = 0
        self.published = None
        self._wake_at_ms = None

    def tell_later(self, event: CampaignEvent, delay_ms: int) -> None:
        """Let the shell report something after a while."""
        news = CampaignNews(self, self.incarnation, self.home, event)
        self.world.schedule(delay_ms, news)

    def tell(self, event: CampaignEvent) -> None:
        """Feed the campaign and perform what it wants."""
        home = self.home
        home.now = now = home.clocks.read(self.world.now_ms)
        for effect in self.campaign.offer(event, now, self.world.rng.random()):
            self._perform(effect)
        self._set_timer()

    def wake(self) -> None:
        """A deadline of the campaign is reached, unless it has moved since."""
        if self._wake_at_ms is None or self.world.now_ms < self._wake_at_ms:
            self.world.event_count -= 1
            return
        self._wake_at_ms = None
        self.tell(TimePassed())

    def replied(self, node: Node, request: Request, reply: Reply) -> None:
        """Note what arrived, then hand it over."""
        self._note(node, request, reply)
        self.tell(Replied(node.node_id, request, reply))

    def failed(self, number: int) -> None:
        """The network gave a request up."""
        asked = self.in_flight.pop(number, None)
        if asked is not None:
            node, request = asked
            self.tell(RequestFailed(node.node_id, request, "connection lost"))

    def stage_lost(self, node: Node, run_id: RunId, *, is_fenced: bool) -> None:
        """Hear from a node's status that a stage is gone."""
        lost = StageLost(run_id, node.node_id, "the stage ended", is_fenced)
        self.tell_later(lost, self.world.rng.randrange(100, 5_000))

    def peer_changed(self, node: Node, *, is_available: bool) -> None:
        """Hear that a node went or came."""
        change = PeerChanged(node.node_id, is_available)
        now_ms = self.world.now_ms
        at_ms = now_ms + self.world.rng.randrange(100, 5_000)
        # What a watcher says about one node keeps its order, else old news would last.
        at_ms = max(at_ms, self._news_at_ms.get(node.index, 0) + 1)
        self._news_at_ms[node.index] = at_ms
        self.tell_later(change, at_ms - now_ms)

    def _perform(self, effect: CampaignEffect) -> None:
        match effect:
            case Send(node_id, request):
                self._check_send(request)
                self.send(self.world.node_of(node_id), request)
            case RequestPlan(excluded=excluded):
                self._plan(excluded)
            case PersistTerm(term):
                self.durable_term = term
            case Report():
                pass
            case ProveChain() | PublishRoute() | WithdrawRoute():
                self._change_route(effect)
            case _:
                assert_never(effect)

    def _change_route(self, effect: ProveChain | PublishRoute | WithdrawRoute) -> None:
        match effect:
            case ProveChain(run):
                self.world.schedule(1, Token(self, run, is_canary=True).hops[0])
            case PublishRoute(run):
                self._publish(run)
            case WithdrawRoute(run_id):
                if self.published is not None and self.published.run_id == run_id:
                    self.published = None
                delay_ms = self.world.rng.randrange(10, 2_000)
                self.tell_later(RouteWithdrawn(run_id), delay_ms)

    def _plan(self, excluded: tuple[str, ...]) -> None:
        plan = self.world.plan(self.home, excluded)
        event = PlanMissing("too few nodes") if plan is None else PlanMade(plan)
        self.tell_later(event, self.world.rng.randrange(1, 50))

    def _publish(self, run: Run) -> None:
        ghost = self.runs[run.run_id]
        if set(ghost.planned) != ghost.ready or not ghost.is_proved:
            self.broken("L0", f"{run.run_id} published without echo or proof")
        self.published = run
        self.tell_later(RoutePublished(run.run_id), 5)
        token = Token(self, run, is_canary=False)
        self.world.schedule(TOKEN_EVERY_MS, token.hops[0])

    def token_ended(self, token: Token, failure: str | None) -> None:
        """A token came through, or something was in its way."""
        if token.is_canary:
            run_id = token.run_id
            if failure is None and run_id in self.runs:
                self.runs[run_id].is_proved = True
            event = ProofFailed(run_id, failure) if failure else ChainProved(run_id)
            self.tell_later(event, 1)
        elif self.published is token.run:
            self.world.schedule(TOKEN_EVERY_MS, token.hops[0])

    # The ghost.

    def _note(self, node: Node, request: Request, reply: Reply) -> None:
        match request, reply:
            case ProbeClaim(claim), ProbeAnswer(verdict=verdict):
                if self._note_verdict(verdict):
                    self._ghost_of(claim).would_accept.add(node.node_id)
            case ClaimCoordinator(claim), ClaimAnswer(verdict=verdict):
                if self._note_verdict(verdict):
                    self._ghost_of(claim).accepted.add(node.node_id)
            case _, PreparationStatus(state=PreparationState.READY, stage=stage):
                if stage.run_id in self.runs:
                    self.runs[stage.run_id].prepared.add(node.node_id)
            case LoadStage() as load, StageReady(status):
                self._note_ready(node, load, status)
            case _:
                pass

    def _note_ready(self, node: Node, load: LoadStage, status: StageStatus) -> None:
        ghost = self.runs.get(load.stage.run_id)
        if ghost is not None and status.admission == load.admission:
            ghost.ready.add(node.node_id)

    def _note_verdict(self, verdict: ClaimVerdict) -> bool:
        """Note the term of a refusal; says whether it is an accept."""
        if isinstance(verdict, Rejected) and verdict.current_term is not None:
            self.seen_term = max(self.seen_term, verdict.current_term)
        return isinstance(verdict, Accepted | Superseded)

    def _ghost_of(self, claim: CoordinatorClaim) -> RunGhost:
        run_id = claim.epoch.run_id
        ghost = self.runs.get(run_id)
        if ghost is None:
            self.rounds += 1
            planned = self.world.planned_by(claim.epoch.topology_hash)
            ghost = self.runs[run_id] = RunGhost(planned)
        return ghost

    def _check_send(self, request: Request) -> None:
        match request:
            case ProbeClaim(claim):
                self._ghost_of(claim)
                if claim.term <= self.seen_term:
                    self.broken("I11", f"{claim.term} is not above {self.seen_term}")
            case ClaimCoordinator(claim):
                self._check_claim(claim)
            case LoadStage() as load:
                self._check_load(load)
            case _:
                pass

    def _check_claim(self, claim: CoordinatorClaim) -> None:
        ghost = self._ghost_of(claim)
        if ghost.would_accept != set(ghost.planned):
            self.broken("M1", f"{claim.term} claimed without asking everyone")
        if ghost.prepared != set(ghost.planned):
            self.broken("M1", f"{claim.term} claimed before the parts are there")
        run_id = claim.epoch.run_id
        if self.claimed_terms.setdefault(claim.term, run_id) != run_id:
            self.broken("I2", f"term {claim.term} used for two runs")
        if self.durable_term < claim.term:
            self.broken("I11", f"term {claim.term} claimed before it was durable")

    def _check_load(self, load: LoadStage) -> None:
        ghost = self.runs[load.stage.run_id]
        if len(ghost.accepted) * 2 <= len(ghost.planned):
            self.broken("I8", f"{load.stage.run_id} loads without a majority")
        after = ghost.planned[load.stage_index + 1 :]
        if not ghost.ready.issuperset(after):
            self.broken("L0", f"{load.stage.run_id} loads out of order")
        self.world.check_exclusion(load, ghost.planned)

    def check_may_end(self, claim: CoordinatorClaim, process: GhostProcess) -> None:
        """M1: only a claim that a majority would accept may end a serving stage."""
        ghost = self.runs.get(claim.epoch.run_id)
        # None: the claim outlived the process that sent it, and was checked then.
        if ghost is not None and len(ghost.would_accept) * 2 <= len(ghost.planned):
            self.broken("M1", f"a minority ended {process.load.stage.run_id}")

    def check_may_stop(self, process: GhostProcess) -> None:
        """I5: a coordinator stops its own runs, whatever another one calls its own."""
        owner = process.load.coordinator_id
        if owner != CoordinatorId(self.home.node_id):
            self.broken("I5", f"stopped {process.load.stage.run_id} of {owner}")

    def broken(self, name: str, text: str) -> None:
        """Report a broken invariant of this coordinator."""
        raise InvariantBrokenError(name, f"{self.name}: {text}")

    def _set_timer(self) -> None:
        deadline = self.campaign.next_deadline()
        if deadline is None:
            return
        now_ms = self.world.now_ms
        at_ms = max(self.home.clocks.true_ms_of(deadline), now_ms + 1)
        if self._wake_at_ms is None or at_ms < self._wake_at_ms:
            self._wake_at_ms = at_ms
            wake = CoordinatorWake(self, self.incarnation, self.home)
            self.world.schedule(at_ms - now_ms, wake)
