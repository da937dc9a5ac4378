"""Requests and replies of the coordinator in a few words, for stories and traces."""

from __future__ import annotations

from typing import assert_never

from skippyd.core.coordinator.messages import (
    CancelPrepareStage,
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    LoadStage,
    PreparationStatus,
    PrepareFailed,
    PrepareStage,
    ProbeAnswer,
    ProbeClaim,
    Reply,
    Request,
    StageReady,
    StageStopped,
    StopFailed,
    StopStage,
)
from skippyd.core.coordinator.verdict import (
    Accepted,
    ClaimVerdict,
    FencingInProgress,
    Rejected,
    Superseded,
)


def describe_request(request: Request) -> str:
    """A request as one line."""
    match request:
        case ProbeClaim(claim):
            return f"probe term {claim.term}"
        case ClaimCoordinator(claim):
            return f"claim term {claim.term}"
        case PrepareStage(load):
            return f"prepare {load.stage.stage_id} of {load.stage.run_id}"
        case CancelPrepareStage():
            return f"cancel {request.stage.stage_id} of {request.stage.run_id}"
        case LoadStage():
            return f"load {request.stage.stage_id} of {request.stage.run_id}"
        case StopStage():
            return f"stop {request.stage.stage_id} of {request.stage.run_id}"
        case _:
            assert_never(request)


def describe_reply(reply: Reply) -> str:
    """A reply as one line."""
    match reply:
        case ProbeAnswer():
            runs = "".join(f", would end {run.run_id}" for run in reply.fenced_runs)
            return f"would say: {describe_verdict(reply.verdict)}{runs}"
        case ClaimAnswer():
            return describe_verdict(reply.verdict)
        case StageReady(status):
            return f"{status.stage.stage_id} is ready"
        case StageStopped(stage):
            return f"{stage.stage_id} is stopped"
        case PreparationStatus():
            return f"{reply.stage.stage_id} is {reply.state.value}"
        case LoadFailed() | StopFailed() | PrepareFailed():
            return f"refused: {reply.refusal.text}"
        case _:
            assert_never(reply)


def describe_verdict(verdict: ClaimVerdict) -> str:
    """A verdict on a claim in a few words."""
    match verdict:
        case Accepted():
            return "accepted"
        case Superseded():
            return f"accepted, supersedes term {verdict.supersedes_term}"
        case FencingInProgress():
            return verdict.text
        case Rejected():
            return f"refused: {verdict.text}"
        case _:
            assert_never(verdict)
