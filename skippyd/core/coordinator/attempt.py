"""One attempt of a coordinator to get one run from probe to published.

Theory of operation. Phases go one way, except that probes are repeated when the
preparation took so long that their answers are old:

    PROBING -> PREPARING -> CLAIMING -> LOADING -> PROVING -> PUBLISHING -> PUBLISHED

Claims leave only when every planned stage said it would accept and holds its parts
(each of them must load, so this is a majority and more). After that a majority must
really accept; a stage that was merely unreachable is claimed again right before its
load. Any other trouble sets `failure`, the owner then takes `abandon()` and drops the
attempt. Answers are matched by term and run, so late ones of older attempts are lost
on it.
"""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.campaign_effects import (
    CampaignEffect,
    PersistTerm,
    ProveChain,
    PublishRoute,
    Replied,
    Report,
    RequestFailed,
    Send,
    StageLost,
    Step,
    WithdrawRoute,
)
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.loading import LoadSequence
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    PreparationState,
    PreparationStatus,
    PrepareFailed,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    StageReady,
)
from skippyd.core.coordinator.phases import (
    CLAIM_TIMEOUT_MS,
    FIRST_POLL_MS,
    POLL_MS,
    PROBE_FRESH_MS,
    PROBE_TIMEOUT_MS,
    PROVE_TIMEOUT_MS,
    PUBLISH_TIMEOUT_MS,
    UNFIT_REASONS,
    AttemptFailure,
    Phase,
)
from skippyd.core.coordinator.quorum import Tally
from skippyd.core.coordinator.run import Run
from skippyd.core.coordinator.terms import run_of
from skippyd.core.coordinator.verdict import FencedRun, FencingInProgress, Rejected
from skippyd.ids import NodeId, Term


@attrs.define(kw_only=True)
class Attempt:
    """One run on its way; see the module docstring.

    `lost_nodes` are known to be gone: their runs elsewhere are in nobody's way.
    """

    run: Run
    lost_nodes: frozenset[NodeId] = frozenset()
    phase: Phase = attrs.field(default=Phase.PROBING, init=False)
    failure: AttemptFailure | None = attrs.field(default=None, init=False)
    _tally: Tally = attrs.field(init=False)
    _deadline_ms: int = attrs.field(default=0, init=False)
    _poll_ms: int | None = attrs.field(default=None, init=False)
    _probed_ms: int = attrs.field(default=0, init=False)
    _blocking: tuple[str, ...] = attrs.field(default=(), init=False)
    _rejections: tuple[str, ...] = attrs.field(default=(), init=False)
    _blamed: set[NodeId] = attrs.field(factory=set, init=False)
    _instance_ids: dict[NodeId, str] = attrs.field(factory=dict, init=False)
    _is_prepared: bool = attrs.field(default=False, init=False)
    _is_preparation_begun: bool = attrs.field(default=False, init=False)
    _is_claim_sent: bool = attrs.field(default=False, init=False)
    _loads: LoadSequence = attrs.field(init=False)

    def next_deadline(self) -> int:
        """When `pass_time` has something to do, in boottime milliseconds."""
        if self.phase is Phase.LOADING:
            return self._loads.next_deadline()
        if self._poll_ms is None:
            return self._deadline_ms
        return min(self._poll_ms, self._deadline_ms)

    def begin(self, now: Instant) -> tuple[CampaignEffect, ...]:
        """Ask every planned stage whether it would accept."""
        self._enter(Phase.PROBING, now, PROBE_TIMEOUT_MS)
        self._blocking = ()
        self._blamed.clear()
        probe = ProbeClaim(self.run.claim(now))
        sends = (Send(node_id, probe) for node_id in self.run.plan.node_ids)
        return (self._report(Step.PROBE, "asking every planned stage"), *sends)

    def reply(self, event: Replied, now: Instant) -> tuple[CampaignEffect, ...]:
        """Take a node's answer in; answers to older runs or phases change nothing."""
        if self.failure is not None or run_of(event.request) != self._identity:
            return ()
        match self.phase, event.reply:
            case Phase.PROBING, ProbeAnswer() as answer:
                return self._take_probe(event.node_id, answer, now)
            case Phase.PREPARING, PreparationStatus() as status:
                return self._take_preparation(event.node_id, status, now)
            case Phase.PREPARING, PrepareFailed() as failed:
                text, current_term = failed.refusal.text, failed.refusal.current_term
                return self._blame(event.node_id, "prepare", text, current_term)
            case Phase.CLAIMING, ClaimAnswer() as answer:
                return self._take_claim(event.node_id, answer, now)
            case Phase.LOADING, ClaimAnswer() | StageReady() | LoadFailed() as answer:
                return self._go_on_loading(
                    self._loads.reply(event.node_id, answer, now), now
                )
            case _:
                return ()

    def request_failed(
        self, event: RequestFailed, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        """Count a node that could not be asked; only the loads need every one."""
        if self.failure is not None or run_of(event.request) != self._identity:
            return ()
        match self.phase, event.request:
            case (Phase.PROBING, ProbeClaim()) | (Phase.CLAIMING, ClaimCoordinator()):
                self._blamed.add(event.node_id)
                self._tally.refuse(event.node_id, event.reason)
                return self._conclude_if_complete(now)
            case Phase.PREPARING, PrepareStage():
                return self._blame(event.node_id, "prepare", event.reason)
            case Phase.LOADING, _:
                self._loads.request_failed(event.node_id, event.reason)
                return self._go_on_loading((), now)
            case _:
                return ()

    def prove(self, now: Instant) -> tuple[CampaignEffect, ...]:
        """Go on after a token went through the whole chain."""
        if self.failure is not None or self.phase is not Phase.PROVING:
            return ()
        self._enter(Phase.PUBLISHING, now, PUBLISH_TIMEOUT_MS)
        return self._report(Step.PUBLISH, "the chain answers"), PublishRoute(self.run)

    def publish(self) -> None:
        """Go on after the route became visible."""
        if self.failure is None and self.phase is Phase.PUBLISHING:
            self.phase = Phase.PUBLISHED

    def lose(self, event: StageLost) -> None:
        """End the attempt because of one stage; a fenced one is no fault of its node."""
        blamed = () if event.is_fenced else (event.node_id,)
        reason = f"lost {event.node_id}: {event.reason}"
        self._fail(AttemptFailure(reason=reason, blamed=blamed))

    def fail_proof(self, reason: str) -> None:
        """End the attempt because no token came through."""
        self._fail(AttemptFailure(reason=f"the chain does not answer: {reason}"))

    def pass_time(self, now: Instant) -> tuple[CampaignEffect, ...]:
        """Poll, repeat, or give up what has taken too long."""
        if self.failure is not None or now.boottime_ms < self.next_deadline():
            return ()
        if self.phase is Phase.LOADING:
            return self._go_on_loading(self._loads.pass_time(now), now)
        if now.boottime_ms >= self._deadline_ms:
            return self._time_out(now)
        return self._poll(now)

    def has_claimed_at(self, node_id: NodeId) -> bool:
        """Whether its claim may have ended an older run of ours at a node."""
        return self.phase.has_claimed and node_id in self.run.plan.node_ids

    def abandon(self) -> tuple[CampaignEffect, ...]:
        """Undo what was begun: the route first, then the stages, then preparations."""
        effects: list[CampaignEffect] = []
        if self.phase in {Phase.PUBLISHING, Phase.PUBLISHED}:
            effects.append(WithdrawRoute(self.run.run_id))
        stages = self.run.plan.stages
        if self._is_claim_sent:
            effects += (Send(stage.node_id, self.run.stop(stage)) for stage in stages)
        if self._is_preparation_begun:
            effects += (Send(stage.node_id, self.run.cancel(stage)) for stage in stages)
        return tuple(effects)

    @property
    def _identity(self) -> tuple[int, str]:
        return self.run.term, self.run.run_id

    def _enter(self, phase: Phase, now: Instant, timeout_ms: int) -> None:
        self.phase = phase
        self._tally = Tally(self.run.plan.node_ids)
        self._deadline_ms = now.boottime_ms + timeout_ms
        self._poll_ms = None

    def _fail(self, failure: AttemptFailure) -> None:
        if self.failure is None:
            self.failure = failure

    def _blame(
        self, node_id: NodeId, verb: str, reason: str, current_term: Term | None = None
    ) -> tuple[CampaignEffect, ...]:
        # Where a rival was quicker the node is not to blame: the next plan needs it.
        is_overtaken = (current_term or 0) > self.run.term
        reason = f"{verb} at {node_id} failed: {reason}"
        blamed = () if is_overtaken else (node_id,)
        self._fail(AttemptFailure(reason=reason, blamed=blamed))
        return ()

    def _report(
        self, step: Step, message: str, node_id: NodeId | None = None
    ) -> Report:
        return Report(step, f"{self.run.run_id}: {message}", node_id)

    # Probing.

    def _take_probe(
        self, node_id: NodeId, answer: ProbeAnswer, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        if isinstance(answer.verdict, Rejected):
            self._tally.refuse(node_id, answer.verdict.text)
            if answer.verdict.reason in UNFIT_REASONS:
                self._blamed.add(node_id)
        else:
            self._tally.accept(node_id)
            self._instance_ids[node_id] = answer.instance_id
            self._blocking += tuple(
                f"{node_id}: {_describe(run)}"
                for run in answer.fenced_runs
                if self._is_blocking(run)
            )
        return self._conclude_if_complete(now)

    def _is_blocking(self, run: FencedRun) -> bool:
        if self.run.plan.may_replace:
            return False
        owner = run.coordinator_id
        if owner is None:
            return True
        is_foreign = owner != self.run.coordinator_id
        return is_foreign and run.is_lease_held and NodeId(owner) not in self.lost_nodes

    def _conclude_if_complete(self, now: Instant) -> tuple[CampaignEffect, ...]:
        if not self._tally.is_complete:
            return ()
        return self._conclude(now)

    def _conclude(self, now: Instant) -> tuple[CampaignEffect, ...]:
        if self.phase is Phase.PROBING:
            return self._conclude_probes(now)
        return self._conclude_claims(now)

    def _conclude_probes(self, now: Instant) -> tuple[CampaignEffect, ...]:
        if self._blocking:
            reason = f"another run is in the way: {'; '.join(self._blocking)}"
            self._fail(AttemptFailure(reason=reason, is_blocked=True))
            return ()
        if not self._tally.are_all_accepted:
            return self._miss_quorum("probe")
        self._probed_ms = now.boottime_ms
        return self._claim(now) if self._is_prepared else self._prepare(now)

    def _miss_quorum(self, verb: str) -> tuple[CampaignEffect, ...]:
        reason = self._tally.failure_text(verb, self.run.plan.key.model_id)
        self._fail(AttemptFailure(reason=reason, blamed=tuple(sorted(self._blamed))))
        return ()

    # Preparing.

    def _prepare(self, now: Instant) -> tuple[CampaignEffect, ...]:
        self._enter(Phase.PREPARING, now, self.run.plan.prepare_timeout_ms)
        self._poll_ms = now.boottime_ms + FIRST_POLL_MS
        self._is_preparation_begun = True
        return self._report(Step.PREPARE, "all would accept"), *self._ask_prepared()

    def _ask_prepared(self) -> tuple[CampaignEffect, ...]:
        return tuple(
            Send(stage.node_id, PrepareStage(self.run.load(stage)))
            for stage in self.run.plan.stages
            if stage.node_id in self._tally.silent
        )

    def _take_preparation(
        self, node_id: NodeId, status: PreparationStatus, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        match status.state:
            case PreparationState.AVAILABLE | PreparationState.READY:
                self._tally.accept(node_id)
            case PreparationState.FAILED | PreparationState.CANCELLED:
                return self._blame(node_id, "prepare", status.error)
            case _:
                return ()
        if not self._tally.are_all_accepted:
            return ()
        self._is_prepared = True
        is_probe_fresh = now.boottime_ms - self._probed_ms <= PROBE_FRESH_MS
        return self._claim(now) if is_probe_fresh else self.begin(now)

    # Claiming.

    def _claim(self, now: Instant) -> tuple[CampaignEffect, ...]:
        self._enter(Phase.CLAIMING, now, CLAIM_TIMEOUT_MS)
        self._rejections = ()
        self._is_claim_sent = True
        return (
            self._report(Step.CLAIM, f"claiming term {self.run.term}"),
            PersistTerm(self.run.term),
            *self._send_claims(self.run.plan.node_ids, now),
        )

    def _send_claims(
        self, node_ids: tuple[NodeId, ...], now: Instant
    ) -> tuple[CampaignEffect, ...]:
        claim = ClaimCoordinator(self.run.claim(now))
        return tuple(Send(node_id, claim) for node_id in node_ids)

    def _count_claim(self, node_id: NodeId, answer: ClaimAnswer, now: Instant) -> None:
        if answer.instance_id != self._instance_ids.get(node_id):
            text = "its fence store changed since the probe"
        elif isinstance(answer.verdict, Rejected):
            text = answer.verdict.text
        elif isinstance(answer.verdict, FencingInProgress):
            self._poll_ms = now.boottime_ms + POLL_MS
            return
        else:
            self._tally.accept(node_id)
            return
        self._tally.refuse(node_id, text)
        self._rejections += (f"{node_id}: {text}",)

    def _take_claim(
        self, node_id: NodeId, answer: ClaimAnswer, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        self._count_claim(node_id, answer, now)
        return self._conclude_if_complete(now)

    def _conclude_claims(self, now: Instant) -> tuple[CampaignEffect, ...]:
        if not self._tally.has_quorum:
            return self._miss_quorum("claim")
        if self._rejections:
            # A majority accepted, but a stage that must load will not take the load.
            reason = f"claim refused by {'; '.join(self._rejections)}"
            self._fail(AttemptFailure(reason=reason))
            return ()
        self.phase = Phase.LOADING
        self._loads = LoadSequence(self.run, self._tally)
        return self._go_on_loading(self._loads.begin(now), now)

    # Loading and after.

    def _go_on_loading(
        self, effects: tuple[CampaignEffect, ...], now: Instant
    ) -> tuple[CampaignEffect, ...]:
        if self._loads.failure is not None:
            self._fail(self._loads.failure)
            return effects
        if not self._loads.is_done:
            return effects
        self._enter(Phase.PROVING, now, PROVE_TIMEOUT_MS)
        report = self._report(Step.PROVE, "all stages are ready")
        return (*effects, report, ProveChain(self.run))

    def _poll(self, now: Instant) -> tuple[CampaignEffect, ...]:
        self._poll_ms = now.boottime_ms + POLL_MS
        if self.phase is Phase.PREPARING:
            return self._ask_prepared()
        return self._send_claims(self._tally.silent, now)

    def _time_out(self, now: Instant) -> tuple[CampaignEffect, ...]:
        match self.phase:
            case Phase.PROBING | Phase.CLAIMING:
                self._blamed.update(self._tally.silent)
                for node_id in self._tally.silent:
                    self._tally.refuse(node_id, "no answer in time")
                return self._conclude(now)
            case Phase.PREPARING:
                silent = self._tally.silent
                reason = f"not prepared in time: {', '.join(silent)}"
                self._fail(AttemptFailure(reason=reason, blamed=silent))
            case _:
                reason = f"{self.phase.value} took too long"
                self._fail(AttemptFailure(reason=reason))
        return ()


def _describe(run: FencedRun) -> str:
    if run.coordinator_id is None:
        return "a local stage without a coordinator; stop it or deploy with replacement"
    doing = "serves" if run.is_serving else "starts"
    return f"{run.run_id} of coordinator {run.coordinator_id} {doing}"
