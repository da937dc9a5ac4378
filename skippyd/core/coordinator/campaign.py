"""The proposer: what one coordinator does to keep one model running.

Theory of operation. The shell feeds events to `offer` and performs the effects in
their order. Three things live side by side:

- the *wish* (`Start`, `Withdraw`) and the wait for the next plan: a retry tick while
  standing by, a debounce after peer changes, a jittered back-off after failures;
- at most one `Attempt` on its way to a published run;
- at most one `Serving` run. A loss starts its grace and a replan without the lost
  node; the newer run replaces it, or the route is withdrawn when the grace ends.

A run that another coordinator serves stays: this one stands by, unless that
coordinator is known to be gone, its lease has run out, or the plan may replace it.
A fenced coordinator withdraws at once and stands by, it does not fight back. The
stages of a coordinator that came back without its memory are left alone until their
lease ends, four hours at most: an operator who knows better says `may_replace`.
"""

from __future__ import annotations

from typing import assert_never

import attrs

from skippyd.core.coordinator.attempt import Attempt
from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    CampaignEvent,
    ChainProved,
    PeerChanged,
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
from skippyd.core.coordinator.instant import MS_PER_S, Instant
from skippyd.core.coordinator.messages import ClaimAnswer, ClaimCoordinator, StopStage
from skippyd.core.coordinator.owed import OwedStops
from skippyd.core.coordinator.phases import RENEW_AFTER_MS, AttemptFailure, Phase
from skippyd.core.coordinator.run import CampaignPlan, Run
from skippyd.core.coordinator.serving import Serving
from skippyd.core.coordinator.terms import learn_term, next_term
from skippyd.core.coordinator.verdict import Rejected
from skippyd.ids import CoordinatorId, NodeId, RunId, Term


NO_TERM = Term(0)

RETRY_TICK_MS = 30 * MS_PER_S
DEBOUNCE_MS = 2 * MS_PER_S
BACK_OFF_FIRST_MS = 1 * MS_PER_S
BACK_OFF_MAX_MS = RETRY_TICK_MS
BACK_OFF_MAX_DOUBLINGS = 5


@attrs.define(kw_only=True)
class Campaign:
    """The coordinator of one model on one node; see the module docstring."""

    coordinator_id: CoordinatorId
    newest_term: Term = NO_TERM
    _is_wanted: bool = attrs.field(default=False, init=False)
    _is_planning: bool = attrs.field(default=False, init=False)
    _attempt: Attempt | None = attrs.field(default=None, init=False)
    _serving: Serving | None = attrs.field(default=None, init=False)
    _generation: int = attrs.field(default=1, init=False)
    _failure_count: int = attrs.field(default=0, init=False)
    _retry_ms: int | None = attrs.field(default=None, init=False)
    _is_backing_off: bool = attrs.field(default=False, init=False)
    _lost_nodes: set[NodeId] = attrs.field(factory=set, init=False)
    _blamed: tuple[NodeId, ...] = attrs.field(default=(), init=False)
    _owed: OwedStops = attrs.field(factory=OwedStops, init=False)

    @property
    def attempt(self) -> Attempt | None:
        """The run that is on its way."""
        return self._attempt

    @property
    def serving(self) -> Serving | None:
        """The run whose route is published."""
        return self._serving

    def next_deadline(self) -> int | None:
        """When `TimePassed` is to be offered, in boottime milliseconds."""
        deadlines = [
            None if self._attempt is None else self._attempt.next_deadline(),
            None if self._serving is None else self._serving.next_deadline(),
            self._retry_ms,
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
        if isinstance(event, StageLost) and self._is_serving(event.run_id):
            return self._lose_stage(event, now)
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
            case StageLost():
                attempt.lose(event)
            case _:
                assert_never(event)
        return ()

    # The wish and the plan.

    def _start(self) -> tuple[CampaignEffect, ...]:
        if self._is_wanted:
            return ()
        self._is_wanted = True
        self._failure_count = 0
        is_served = self._serving is not None and not self._serving.is_withdrawing
        return () if is_served else self._request_plan()

    def _give_up_wish(self, now: Instant) -> tuple[CampaignEffect, ...]:
        self._is_wanted = False
        self._is_planning = False
        self._retry_ms = None
        abandoned = () if self._attempt is None else self._attempt.abandon()
        self._attempt = None
        return (*abandoned, *self._withdraw("asked to", now))

    def _request_plan(self) -> tuple[CampaignEffect, ...]:
        self._retry_ms = None
        if self._is_planning or self._attempt is not None or not self._is_wanted:
            return ()
        self._is_planning = True
        excluded = tuple(sorted(self._lost_nodes.union(self._blamed)))
        is_replan = self._serving is not None
        step = Step.REPLAN if is_replan else Step.PLAN
        without = f" without {', '.join(excluded)}" if excluded else ""
        return (
            Report(step, f"planning{without}"),
            RequestPlan(excluded=excluded, is_replan=is_replan),
        )

    def _take_plan(
        self, event: PlanMade | PlanMissing, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        if not self._is_planning:
            return ()
        self._is_planning = False
        if isinstance(event, PlanMissing):
            return self._stand_by(event.reason, now)
        if (defect := self._plan_defect(event.plan)) is not None:
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
        self._attempt = Attempt(run=run, lost_nodes=frozenset(self._lost_nodes))
        return self._attempt.begin(now)

    def _plan_defect(self, plan: CampaignPlan) -> str | None:
        if not plan.stages or plan.stages[0].node_id != NodeId(self.coordinator_id):
            return "the plan's first stage is not on this node: another one coordinates"
        if lost := self._lost_nodes.intersection(plan.node_ids):
            return f"the plan counts on lost nodes: {', '.join(sorted(lost))}"
        if len(set(plan.node_ids)) != len(plan.stages):
            return "the plan gives one node several stages"
        return None

    def _stand_by(self, reason: str, now: Instant) -> tuple[CampaignEffect, ...]:
        # Whoever was blamed may be back by the next tick; lost nodes say so themselves.
        self._blamed = ()
        self._is_backing_off = False
        self._retry_ms = now.boottime_ms + RETRY_TICK_MS
        return (Report(Step.PLAN, f"standing by: {reason}"),)

    def _change_peer(
        self, event: PeerChanged, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        effects: tuple[CampaignEffect, ...]
        if event.is_available:
            self._lost_nodes.discard(event.node_id)
            self._blamed = tuple(n for n in self._blamed if n != event.node_id)
            effects = self._owed.pay(event.node_id)
        else:
            self._lost_nodes.add(event.node_id)
            effects = self._lose_node(event.node_id, now)
        if self._retry_ms is not None and not self._is_backing_off:
            # Never later than the tick: a flapping peer must not hold planning up.
            self._retry_ms = min(self._retry_ms, now.boottime_ms + DEBOUNCE_MS)
        return effects

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
            return self._take_renewal(serving, event, now)
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
            self._attempt = None
            abandoned = attempt.abandon()
            return (*abandoned, *self._fail(attempt, attempt.failure, now, jitter))
        if attempt.phase is not Phase.PUBLISHED:
            return ()
        self._attempt = None
        self._failure_count = 0
        self._blamed = ()
        old = self._serving
        self._serving = Serving(attempt.run, now.boottime_ms + RENEW_AFTER_MS)
        if old is None:
            return ()
        return old.stops(spared=frozenset(attempt.run.plan.node_ids))

    def _fail(
        self, attempt: Attempt, failure: AttemptFailure, now: Instant, jitter: float
    ) -> tuple[CampaignEffect, ...]:
        report = Report(Step.FAILED, f"{attempt.run.run_id}: {failure.reason}")
        if failure.is_final:
            self._is_wanted = False
            return (report,)
        if failure.is_blocked:
            return (report, *self._stand_by(failure.reason, now))
        doublings = min(self._failure_count, BACK_OFF_MAX_DOUBLINGS)
        length_ms = min(BACK_OFF_FIRST_MS << doublings, BACK_OFF_MAX_MS)
        self._failure_count += 1
        self._blamed = failure.blamed
        self._is_backing_off = True
        self._retry_ms = now.boottime_ms + int(length_ms * (1 + jitter) / 2)
        return (report,)

    def _pass_time(self, now: Instant) -> tuple[CampaignEffect, ...]:
        effects: tuple[CampaignEffect, ...] = ()
        if self._serving is not None and self._serving.is_due(now):
            effects = self._pass_serving_time(self._serving, now)
        if self._attempt is not None:
            return (*effects, *self._attempt.pass_time(now))
        if self._retry_ms is not None and now.boottime_ms >= self._retry_ms:
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

    def _take_renewal(
        self, serving: Serving, event: Replied | RequestFailed, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        if isinstance(event, RequestFailed):
            serving.renew_soon(now)
            return ()
        verdict = event.reply.verdict if isinstance(event.reply, ClaimAnswer) else None
        if not isinstance(verdict, Rejected):
            return ()
        if (verdict.current_term or 0) <= serving.run.term:
            serving.renew_soon(now)
            return ()
        lost = StageLost(
            run_id=serving.run.run_id,
            node_id=event.node_id,
            reason=verdict.text,
            is_fenced=True,
        )
        return self._lose_stage(lost, now)

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
            if self._attempt is not None or self._is_planning:
                return (report, *withdrawn)
            return (report, *withdrawn, *self._stand_by(event.reason, now))
        self._serving.lose(now)
        self._blamed = (*self._blamed, event.node_id)
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
