"""The loads of one claimed run, one stage after another from the last to the first.

A stage that has not accepted the claim yet (it was unreachable) is claimed again
first: a majority is enough to begin, but every stage must take its load.
"""

from __future__ import annotations

import attrs

from skippyd.core.coordinator.campaign_effects import CampaignEffect, Report, Send, Step
from skippyd.core.coordinator.echo import echo_differences
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    StageReady,
)
from skippyd.core.coordinator.phases import (
    CLAIM_TIMEOUT_MS,
    POLL_MS,
    RENEW_AFTER_MS,
    AttemptFailure,
)
from skippyd.core.coordinator.quorum import Tally
from skippyd.core.coordinator.run import PlannedStage, Run
from skippyd.core.coordinator.verdict import (
    FencingInProgress,
    LoadRefused,
    Rejected,
)
from skippyd.ids import NodeId


@attrs.define
class LoadSequence:
    """Loads of a run; `failure` or `is_done` say how it ended."""

    _run: Run
    _claims: Tally
    failure: AttemptFailure | None = attrs.field(default=None, init=False)
    _cursor: int = attrs.field(init=False)
    _is_load_sent: bool = attrs.field(default=False, init=False)
    _deadline_ms: int = attrs.field(default=0, init=False)
    _poll_ms: int | None = attrs.field(default=None, init=False)
    _renew_ms: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._cursor = len(self._run.plan.stages) - 1

    @property
    def is_done(self) -> bool:
        """Whether every stage is ready and is what was asked for."""
        return self._cursor < 0

    def next_deadline(self) -> int:
        """When `pass_time` has something to do, in boottime milliseconds."""
        if self._poll_ms is None:
            return self._deadline_ms
        return min(self._poll_ms, self._deadline_ms)

    def begin(self, now: Instant) -> tuple[CampaignEffect, ...]:
        """Load the last stage, or claim it again first."""
        self._renew_ms = now.boottime_ms + RENEW_AFTER_MS
        return self._next_stage(now)

    def reply(
        self,
        node_id: NodeId,
        answer: ClaimAnswer | StageReady | LoadFailed,
        now: Instant,
    ) -> tuple[CampaignEffect, ...]:
        """Take an answer in; only the stage whose turn it is can hold the rest up."""
        match answer:
            case ClaimAnswer():
                return self._take_claim(node_id, answer, now)
            case StageReady() if node_id == self._stage.node_id and self._is_load_sent:
                return self._take_ready(answer, now)
            case LoadFailed() if node_id == self._stage.node_id:
                self._take_refusal(answer.refusal)
        return ()

    def request_failed(self, node_id: NodeId, reason: str) -> None:
        """End the loads when the stage whose turn it is cannot be asked."""
        if node_id == self._stage.node_id:
            self._blame(reason)

    def pass_time(self, now: Instant) -> tuple[CampaignEffect, ...]:
        """Repeat an unfinished claim, or give up a stage that takes too long."""
        if now.boottime_ms >= self._deadline_ms:
            self._blame("not ready in time" if self._is_load_sent else "not claimed")
            return ()
        self._poll_ms = None
        return (self._send_claim(self._stage.node_id, now),)

    @property
    def _stage(self) -> PlannedStage:
        return self._run.plan.stages[self._cursor]

    def _take_refusal(self, refusal: LoadRefused | Rejected) -> None:
        # Where a rival was quicker the node is not to blame: the next plan needs it.
        is_overtaken = (refusal.current_term or 0) > self._run.term
        self._fail(refusal.text, () if is_overtaken else (self._stage.node_id,))

    def _blame(self, reason: str) -> None:
        self._fail(reason, (self._stage.node_id,))

    def _fail(self, reason: str, blamed: tuple[NodeId, ...]) -> None:
        stage = self._stage
        self.failure = AttemptFailure(
            reason=f"load of {stage.stage_id} at {stage.node_id} failed: {reason}",
            blamed=blamed,
        )

    def _next_stage(self, now: Instant) -> tuple[CampaignEffect, ...]:
        self._is_load_sent = False
        self._poll_ms = None
        if self._claims.has_accepted(self._stage.node_id):
            return (*self._renew(now), *self._load(now))
        self._deadline_ms = now.boottime_ms + CLAIM_TIMEOUT_MS
        return (self._send_claim(self._stage.node_id, now),)

    def _load(self, now: Instant) -> tuple[CampaignEffect, ...]:
        self._is_load_sent = True
        self._deadline_ms = now.boottime_ms + self._run.plan.load_timeout_ms
        stage = self._stage
        layers = f"layers {stage.layer_start} to {stage.layer_end}"
        message = f"{self._run.run_id}: loading {stage.stage_id}, {layers}"
        return (
            Report(Step.LOAD, message, stage.node_id),
            Send(stage.node_id, self._run.load(stage)),
        )

    def _renew(self, now: Instant) -> tuple[CampaignEffect, ...]:
        # Long loads must not outlive the lease that the later ones need.
        if now.boottime_ms < self._renew_ms:
            return ()
        self._renew_ms = now.boottime_ms + RENEW_AFTER_MS
        return tuple(self._send_claim(node, now) for node in self._run.plan.node_ids)

    def _send_claim(self, node_id: NodeId, now: Instant) -> Send:
        return Send(node_id, ClaimCoordinator(self._run.claim(now)))

    def _take_claim(
        self, node_id: NodeId, answer: ClaimAnswer, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        is_awaited = node_id == self._stage.node_id and not self._is_load_sent
        match answer.verdict:
            case FencingInProgress():
                if is_awaited:
                    self._poll_ms = now.boottime_ms + POLL_MS
                return ()
            case Rejected() as rejected:
                self._claims.refuse(node_id, rejected.text)
                if is_awaited:
                    self._take_refusal(rejected)
                return ()
            case _:
                self._claims.accept(node_id)
                return self._load(now) if is_awaited else ()

    def _take_ready(
        self, ready: StageReady, now: Instant
    ) -> tuple[CampaignEffect, ...]:
        differences = echo_differences(self._run.load(self._stage), ready.status)
        if differences:
            text = "; ".join(difference.text for difference in differences)
            self.failure = AttemptFailure(
                reason=f"{self._stage.stage_id} at {self._stage.node_id} is not what "
                f"was asked for: {text}",
                is_final=True,
            )
            return ()
        self._cursor -= 1
        return () if self.is_done else self._next_stage(now)
