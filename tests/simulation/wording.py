"""Short words for messages, so that fifty events can be read at a glance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.core.coordinator.campaign_effects import PlanMade
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    PreparationStatus,
    PrepareFailed,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    StopFailed,
)
from skippyd.core.coordinator.verdict import FencingInProgress, Rejected


if TYPE_CHECKING:
    from skippyd.core.coordinator.campaign_effects import CampaignEvent
    from skippyd.core.coordinator.messages import Reply, Request


def request_words(request: Request) -> str:
    """Say what is asked, about which run and stage."""
    name = type(request).__name__
    match request:
        case ProbeClaim(claim) | ClaimCoordinator(claim):
            lease = claim.lease_until_unix_ms
            return f"{name} {claim.epoch.run_id} term {claim.term} lease until {lease}"
        case PrepareStage(load):
            return f"{name} {load.stage.run_id}/{load.stage.stage_id}"
        case _:
            stage, generation = request.stage, request.shutdown_generation
            term = request.coordinator_term
            return f"{name} {stage.run_id}/{stage.stage_id} term {term} g{generation}"


def reply_words(reply: Reply) -> str:
    """Say what is answered, a refusal with its text."""
    name = type(reply).__name__
    match reply:
        case ProbeAnswer(verdict=Rejected() as verdict):
            return f"{name} {verdict.text}"
        case ProbeAnswer(verdict=verdict, fenced_runs=runs):
            ended = ", ".join(run.run_id for run in runs) or "nothing"
            return f"{name} {type(verdict).__name__}, would end {ended}"
        case ClaimAnswer(verdict=Rejected() | FencingInProgress() as refused):
            return f"{name} {refused.text}"
        case ClaimAnswer(verdict=verdict):
            return f"{name} {type(verdict).__name__} {verdict.claim.epoch.run_id}"
        case LoadFailed() | StopFailed() | PrepareFailed():
            return f"{name} {reply.stage.run_id}: {reply.refusal.text}"
        case PreparationStatus():
            return f"{name} {reply.stage.run_id}: {reply.state.value}"
        case _:
            return name


def event_words(event: CampaignEvent) -> str:
    """Say what a campaign hears from its shell."""
    match event:
        case PlanMade(plan):
            return f"PlanMade {' '.join(plan.node_ids)}"
        case _:
            return str(event)
