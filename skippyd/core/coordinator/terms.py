"""How a coordinator picks its next term, and what it learns from refusals."""

from __future__ import annotations

from typing import assert_never

from skippyd.core.coordinator.instant import NS_PER_MS, Instant
from skippyd.core.coordinator.memory import TERM_HORIZON_NS, TERM_LIMIT
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
from skippyd.core.coordinator.verdict import Rejected
from skippyd.ids import RunId, Term


def next_term(newest_seen: Term, now: Instant) -> Term:
    """Return the term of a new claim: above all seen, never below the clock in ns."""
    return Term(max(now.unix_ms * NS_PER_MS, newest_seen + 1, 1))


def learn_term(newest_seen: Term, reply: Reply, now: Instant) -> Term:
    """Return the newest term seen after a reply.

    Terms that no node would accept today are not learnt: one wrong node must not
    carry this coordinator beyond the reach of the others.
    """
    seen = _current_term(reply)
    limit = min(now.unix_ms * NS_PER_MS + TERM_HORIZON_NS, TERM_LIMIT - 1)
    return newest_seen if seen is None or seen >= limit else max(newest_seen, seen)


def run_of(request: Request) -> tuple[Term, RunId]:
    """Return which run at which term a request was about."""
    match request:
        case ProbeClaim(claim) | ClaimCoordinator(claim):
            return claim.term, claim.epoch.run_id
        case PrepareStage(load):
            return load.coordinator_term, load.stage.run_id
        case LoadStage() | StopStage() | CancelPrepareStage():
            return request.coordinator_term, request.stage.run_id
        case _:
            assert_never(request)


def _current_term(reply: Reply) -> Term | None:
    match reply:
        case ProbeAnswer() | ClaimAnswer():
            verdict = reply.verdict
            return verdict.current_term if isinstance(verdict, Rejected) else None
        case LoadFailed() | StopFailed() | PrepareFailed():
            return reply.refusal.current_term
        case StageReady() | StageStopped() | PreparationStatus():
            return None
        case _:
            assert_never(reply)
