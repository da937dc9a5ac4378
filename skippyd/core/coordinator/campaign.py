"""The proposer: what one coordinator does to keep one model running.

Theory of operation. The shell feeds events to `offer` and performs the effects in
their order. Three things live side by side:

- the *wish* (`Start`, `Withdraw`) and the wait for the next plan (`Retry`): a tick
  while standing by, a debounce after peer changes, a jittered back-off after failures;
- at most one `Attempt` on its way to a published run;
- at most one `Serving` run. A loss starts its grace and a replan without the lost
  node; the newer run replaces it, or the route is withdrawn when the grace ends. A
  node that drains is planned around too, while its run goes on without a grace.

A run that another coordinator serves stays: this one stands by, unless that
coordinator is known to be gone, its lease has run out, or the plan may replace it.
A fenced coordinator withdraws at once, gives up an attempt that has claimed nothing
yet, and stands by: it does not fight back. The
stages of a coordinator that came back without its memory are left alone until their
lease ends, four hours at most: an operator who knows better says `may_replace`.
"""

from __future__ import annotations

from typing import assert_never

import attrs

from skippyd.core.coordinator.absent import AbsentNodes
from skippyd.core.coordinator.attempt import Attempt
from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    CampaignEvent,
    ChainProved,
    PeerChanged,
    PeerLeaving,
    PlanMade,
    PlanMissing,
    ProofFailed,
    Replied,
    Report,
    RequestFailed,
    RequestPlan,
    RoutePublished,
    RouteWithdrawn,
    StageLost,
    Start,
    Step,
    TimePassed,
    Withdraw,
    WithdrawRoute,
)
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import ClaimCoordinator, StopStage
from skippyd.core.coordinator.owed import OwedStops
from skippyd.core.coordinator.phases import RENEW_AFTER_MS, AttemptFailure, Phase
from skippyd.core.coordinator.retrying import Retry
from skippyd.core.coordinator.run import Run
from skippyd.core.coordinator.serving import WITHDRAW_GRACE_MS, Serving
from skippyd.core.coordinator.terms import learn_term, next_term
from skippyd.ids import CoordinatorId, NodeId, RunId, Term


NO_TERM = Term(0)


@attrs.define(kw_only=True)
class Campaign:
    """The coordinator of one model on one node; see the module docstring.

    Args:
        newest_term: The newest term that is known to exist.
        withdraw_grace_ms: How long a broken run keeps its route.
    """

    coordinator_id: CoordinatorId
    newest_term: Term = NO_TERM
    withdraw_grace_ms: int = WITHDRAW_GRACE_MS
    is_wanted: bool = attrs.field(default=False, init=False)
    _is_planning: bool = attrs.field(default=False, init=False)
    _attempt: Attempt | None = attrs.field(default=None, init=False)
    _serving: Serving | None = attrs.field(default=None, init=False)
    _generation: int = attrs.field(default=1, init=False)
    _retry: Retry = attrs.field(factory=Retry, init=False)
    _absent: AbsentNodes = attrs.field(factory=AbsentNodes, init=False)
    _owed: OwedStops = attrs.field(factory=OwedStops, init=False)

    @property
    def attempt(self) -> Attempt | None:
        """The run that is on its way."""
        return self._attempt

    @property
    def serving(self) -> Serving | None:
        """The run whose route is published."""
        return self._serving

    @property
    def yields_to_rivals(self) -> bool:
        """Whether a rival's run ends the attempt; the fences decide once it claimed."""
        attempt = self._attempt
        if attempt is None or attempt.phase.has_claimed:
            return False
        return not attempt.run.plan.may_replace

    def next_deadline(self) -> int | None:
        """When `TimePassed` is to be offered, in boottime milliseconds."""
        deadlines = [
            None if self._attempt is None else self._attempt.next_deadline(),
            None if self._serving is None else self._serving.next_deadline(),
            self._retry.due_ms,
        ]
        return min((ms for ms in deadlines if ms is not None), default=None)

    def offer(
        self, event: CampaignEvent, now: Instant, jitter: float = 0.5
    ) -> tuple[CampaignEffect, ...]:
        """Take one event in; return what must be done, in order.

        Args:
            event: What happened.
            now: When it happened.
            jitter: A fresh random number in [0, 1): a back-off that begins here
                takes between half of its length and all of it.
        """
        effects = self._take(event, now)
        return (*effects, *self._settle(now, jitter))

    def _take(self, event: CampaignEvent, now: Instant) -> tuple[CampaignEffect, ...]:
        match event:
            case Start():
                return self._start()
            case Withdraw():
                return self._give_up_wish(now)
            case PlanMade() | PlanMissing():
                return self._take_plan(event, now)
            case Replied() | RequestFailed():
                return self._take_answer(event, now)
            case PeerChanged():
                return self._change_peer(event, now)
            case PeerLeaving():
                return self._plan_around(event, now)
            case TimePassed():
                return self._pass_time(now)
            case _:
                return self._take_run_event(event, now)

    def _take_run_event(
        self,
        event: ChainProved | ProofFailed | RoutePublished | RouteWithdrawn | StageLost,
        now: Instant,
    ) -> tuple[CampaignEffect, ...]:
        if isinstance(event, RouteWithdrawn):
            return self._end_serving(event.run_id)
        if isinstance(event, StageLost):
            return self._take_loss(event, now)
        attempt = self._attempt
        if attempt is None or attempt.run.run_id != event.run_id:
            return ()
        match event:
            case ChainProved():
                return attempt.prove(now)
            case ProofFailed():
                attempt.fail_proof(event.reason)
            case RoutePublished():
                attempt.publish()
            case _:
                assert_never(event)
        return ()

    def _take_loss(self, event: StageLost, now: Instant) -> tuple[CampaignEffect, ...]:
        if event.is_stopped:
            self._absent.stopped.add(event.node_id)
        if self._is_serving(event.run_id):
            return self._lose_stage(event, now)
        if self._attempt is not None and self._attempt.run.run_id == event.run_id:
            self._attempt.lose(event)
        return ()

    # The wish and the plan.

    def _start(self) -> tuple[CampaignEffect, ...]:
        # Whoever deploys again wants the stages back that operators have ended.
        self._absent.stopped.clear()
        if not self.is_wanted:
            self.is_wanted = True
            self._retry.failure_count = 0
        return self._request_plan()

    def _give_up_wish(self, now: Instant) -> tuple[CampaignEffect, ...]:
        self.is_wanted = False
        self._is_planning = False
        self._retry.end()
        return (*self._abandon(), *self._withdraw("asked to", now))

    def _request_plan(self) -> tuple[CampaignEffect, ...]:
        self._retry.end()
        if self._is_planning or self._attempt is not None or not self.is_wanted:
            return ()
        if self._is_well_served():
            return ()
        self._is_planning = True
        excluded = self._absent.excluded
        is_replan = self._serving is not None
        step = Step.REPLAN if is_replan else Step.PLAN
        without = f" without {', '.join(excluded)}" if excluded else ""
        return (
            Report(step, f"planning{without}"),
            RequestPlan(excluded=excluded, is_replan=is_replan),
        )

    def _is_well_served(self) -> bool:
        """Whether a run is served that needs no replacement."""
        serving = self._serving
        if serving is None or not serving.is_whole:
            return False
        return self._absent.leaving.isdisjoint(serving.run.plan.node_ids)

    def _take_plan(
        self, event: PlanMade | PlanMissing, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        if not self._is_planning:
            return ()
        self._is_planning = False
        if isinstance(event, PlanMissing):
            return self._stand_by(event.reason, now)
        own_id, node_ids = NodeId(self.coordinator_id), event.plan.node_ids
        if defect := event.plan.defect(own_id) or self._absent.defect(node_ids):
            return self._stand_by(defect, now)
        if self._serving is not None:
            self._generation += 1
        run = Run(
            plan=event.plan,
            coordinator_id=self.coordinator_id,
            term=next_term(self.newest_term, now),
            shutdown_generation=self._generation,
        )
        self.newest_term = run.term
        self._attempt = Attempt(run=run, lost_nodes=frozenset(self._absent.lost))
        return self._attempt.begin(now)

    def _stand_by(self, reason: str, now: Instant) -> tuple[CampaignEffect, ...]:
        # Whoever was blamed may be back by the next tick; lost nodes say so themselves.
        self._absent.blamed = ()
        self._retry.tick(now)
        return (Report(Step.PLAN, f"standing by: {reason}"),)

    def _change_peer(
        self, event: PeerChanged, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        effects: tuple[CampaignEffect, ...]
        if event.is_available:
            self._absent.come_back(event.node_id)
            effects = self._owed.pay(event.node_id)
        else:
            self._absent.lost.add(event.node_id)
            effects = self._lose_node(event.node_id, now)
        self._retry.hasten(now)
        return effects

    def _plan_around(
        self, event: PeerLeaving, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        """Move the stage of a node away that drains; its run serves meanwhile."""
        if not event.is_leaving:
            self._absent.leaving.discard(event.node_id)
            self._retry.hasten(now)
            return ()
        self._absent.leaving.add(event.node_id)
        return () if self._serving is None else self._request_plan()

    # The attempt.

    def _take_answer(
        self, event: Replied | RequestFailed, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        if isinstance(event, Replied):
            self.newest_term = learn_term(self.newest_term, event.reply, now)
        elif isinstance(event.request, StopStage):
            self._owed.owe(event.node_id, event.request)
        serving = self._serving
        if (
            serving is not None
            and isinstance(event.request, ClaimCoordinator)
            and serving.run.is_claimed_by(event.request.claim)
        ):
            lost = serving.take_renewal(event, now)
            return () if lost is None else self._lose_stage(lost, now)
        if self._attempt is None:
            return ()
        if isinstance(event, Replied):
            return self._attempt.reply(event, now)
        return self._attempt.request_failed(event, now)

    def _settle(self, now: Instant, jitter: float) -> tuple[CampaignEffect, ...]:
        """Draw the conclusions from an attempt that has just ended."""
        attempt = self._attempt
        if attempt is None:
            return ()
        if attempt.failure is not None:
            abandoned = self._abandon()
            return (*abandoned, *self._fail(attempt, attempt.failure, now, jitter))
        if attempt.phase is not Phase.PUBLISHED:
            return ()
        self._attempt = None
        self._retry.failure_count = 0
        self._absent.blamed = ()
        old = self._serving
        renew_ms = now.boottime_ms + RENEW_AFTER_MS
        self._serving = Serving(attempt.run, renew_ms, self.withdraw_grace_ms)
        spared = frozenset(attempt.run.plan.node_ids)
        stops = () if old is None else old.stops(spared)
        # Unless a node began to leave meanwhile, that is all.
        return (*stops, *self._request_plan())

    def _abandon(self) -> tuple[CampaignEffect, ...]:
        abandoned = () if self._attempt is None else self._attempt.abandon()
        self._attempt = None
        return abandoned

    def _fail(
        self, attempt: Attempt, failure: AttemptFailure, now: Instant, jitter: float
    ) -> tuple[CampaignEffect, ...]:
        report = Report(Step.FAILED, f"{attempt.run.run_id}: {failure.reason}")
        if failure.is_final:
            self.is_wanted = False
            return (report,)
        if failure.is_blocked:
            return (report, *self._stand_by(failure.reason, now))
        self._absent.blamed = failure.blamed
        self._retry.back_off(now, jitter)
        return (report,)

    def _pass_time(self, now: Instant) -> tuple[CampaignEffect, ...]:
        effects: tuple[CampaignEffect, ...] = ()
        if self._serving is not None and self._serving.is_due(now):
            effects = self._pass_serving_time(self._serving, now)
        if self._attempt is not None:
            return (*effects, *self._attempt.pass_time(now))
        if self._retry.is_due(now):
            return (*effects, *self._request_plan())
        return effects

    # The served run.

    def _is_serving(self, run_id: RunId) -> bool:
        return self._serving is not None and self._serving.run.run_id == run_id

    def _pass_serving_time(
        self, serving: Serving, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        if serving.is_withdrawing:
            return self._end_serving(serving.run.run_id)
        if serving.is_lost:
            return self._withdraw("no replacement within the grace", now)
        return serving.renew(now)

    def _lose_node(self, node_id: NodeId, now: Instant) -> tuple[CampaignEffect, ...]:
        serving = self._serving
        if serving is None or node_id not in serving.run.plan.node_ids:
            return ()
        lost = StageLost(serving.run.run_id, node_id, "the node is unreachable")
        return self._lose_stage(lost, now)

    def _lose_stage(self, event: StageLost, now: Instant) -> tuple[CampaignEffect, ...]:
        assert self._serving is not None
        message = f"{event.run_id}: lost {event.node_id}: {event.reason}"
        report = Report(Step.FAILED, message, event.node_id)
        if event.is_fenced:
            withdrawn = self._withdraw("fenced by a newer coordinator", now)
            abandoned = self._abandon() if self.yields_to_rivals else ()
            if self._attempt is not None or self._is_planning:
                return (report, *withdrawn)
            stood_by = self._stand_by(event.reason, now)
            return (report, *withdrawn, *abandoned, *stood_by)
        self._serving.lose(now)
        attempt, is_there = self._attempt, event.node_id not in self._absent.lost
        if is_there and attempt is not None and attempt.has_claimed_at(event.node_id):
            # Our own newer claim ended that stage: only the grace is to begin.
            return ()
        self._absent.blamed = (*self._absent.blamed, event.node_id)
        return (report, *self._request_plan())

    def _withdraw(self, reason: str, now: Instant) -> tuple[CampaignEffect, ...]:
        serving = self._serving
        if serving is None or serving.is_withdrawing:
            return ()
        serving.withdraw(now)
        run_id = serving.run.run_id
        return (
            Report(Step.WITHDRAW, f"{run_id}: {reason}"),
            WithdrawRoute(run_id),
        )

    def _end_serving(self, run_id: RunId) -> tuple[CampaignEffect, ...]:
        serving = self._serving
        if serving is None or not serving.is_withdrawing:
            return ()
        if serving.run.run_id != run_id:
            return ()
        self._serving = None
        return serving.stops()
