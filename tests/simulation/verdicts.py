"""Checks of what leaves a node: every answer, and every order to end a stage.

Reasons are read here as plain words that must fit the facts of the ghost; whether a
request deserved its refusal is worked out from the facts alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.ghost import identity_of
from simulation.occurrences import Delivery, ProcessStarted
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    LoadFailed,
    LoadStage,
    ProbeAnswer,
    ProbeClaim,
    StageReady,
    StageStopped,
    StopFailed,
    StopStage,
)
from skippyd.core.coordinator.reasons import (
    LoadRefusalReason,
    RejectReason,
    StopRefusalReason,
)
from skippyd.core.coordinator.verdict import FencingInProgress, Rejected


if TYPE_CHECKING:
    from simulation.ghost import GhostProcess, NodeGhost
    from simulation.node import Node, OpenRequest
    from simulation.occurrences import Occurrence
    from skippyd.core.coordinator.claim import CoordinatorClaim
    from skippyd.core.coordinator.messages import Reply


_CLAIM_CONFLICTS = (RejectReason.STALE_TERM, RejectReason.CONFLICTING_SAME_TERM)

_CLAIM_LATE = (RejectReason.EXPIRED_LEASE, RejectReason.QUARANTINED)

_LOAD_MISMATCHES = (
    LoadRefusalReason.MISSING_CLAIM,
    LoadRefusalReason.TERM_MISMATCH,
    LoadRefusalReason.COORDINATOR_MISMATCH,
    LoadRefusalReason.TOPOLOGY_RUN_MISMATCH,
    LoadRefusalReason.HASH_MISMATCH,
    LoadRefusalReason.LEASE_NOT_HELD,
    LoadRefusalReason.EXPIRED_LEASE,
)


def check_answer(node: Node, opened: OpenRequest, reply: Reply) -> None:
    """Check one answer against the facts at the moment it leaves."""
    match opened.delivery.request, reply:
        case ProbeClaim(claim), ProbeAnswer():
            _check_probe(node.ghost, claim, reply)
        case ClaimCoordinator(claim), ClaimAnswer():
            _check_claim(node, opened, claim, reply)
        case LoadStage() as load, StageReady():
            node.ghost.ready_left(load)
        case LoadStage() as load, LoadFailed():
            _check_load_refusal(node, load, reply)
        case StopStage() as stop, StageStopped():
            node.ghost.stopped_left(stop)
        case StopStage() as stop, StopFailed():
            _check_stop_refusal(node.ghost, stop, reply)
        case _:
            pass


def _check_claim(
    node: Node, opened: OpenRequest, claim: CoordinatorClaim, answer: ClaimAnswer
) -> None:
    verdict, ghost = answer.verdict, node.ghost
    if isinstance(verdict, Rejected):
        _check_rejection(node, claim, verdict)
        return
    record = node.store.durable.get(node.world.key)
    durable = None if record is None else record.claim
    ghost.lease_granted(claim, opened.received_at)
    if isinstance(verdict, FencingInProgress):
        if durable is None or durable.term < claim.term:
            ghost.broken("I1", f"{claim.term} is being fenced but not durable")
        return
    ghost.accept_left(claim, durable)
    # Several claims may have waited for one fence; the ghost knows what all of them make
    # of the lease when the last of them is answered.
    if not any(
        isinstance(other.delivery.request, ClaimCoordinator)
        for other in node.open_requests.values()
    ):
        _check_lease(node)


def _check_lease(node: Node) -> None:
    """I13, I4: the lease in memory is what all receipts together make it."""
    control, ghost = node.control, node.ghost
    lease = None if control is None else control.fence.lease_of(node.world.key)
    if lease is None or (lease.until_unix_ms, lease.deadline_boottime_ms) != (
        ghost.lease_until_ms,
        ghost.lease_deadline_ms,
    ):
        ghost.broken("I13", f"lease {lease}, not {ghost.lease_until_ms}")


def _check_rejection(node: Node, claim: CoordinatorClaim, verdict: Rejected) -> None:
    ghost = node.ghost
    if verdict.current_term != (node.store.durable_term or None):
        ghost.broken("I11", f"the refusal says {verdict.current_term} is current")
    if verdict.reason in _CLAIM_CONFLICTS:
        is_lower = claim.term < ghost.term
        is_other = claim.term == ghost.term and not _is_same(ghost, claim)
        if not (is_lower or is_other):
            ghost.broken("F2", f"claim {claim.term} refused: {verdict.text}")
    elif verdict.reason in _CLAIM_LATE:
        is_in_time = claim.lease_until_unix_ms > node.now.unix_ms
        is_repeated = _is_same(ghost, claim) and ghost.lease_until_ms is not None
        if is_in_time and not (is_repeated or ghost.is_amnesic):
            ghost.broken("F2", f"claim {claim.term} refused: {verdict.text}")


def _is_same(ghost: NodeGhost, claim: CoordinatorClaim) -> bool:
    return claim.term == ghost.term and identity_of(claim) == ghost.identity


def _check_probe(
    ghost: NodeGhost, claim: CoordinatorClaim, answer: ProbeAnswer
) -> None:
    """A probe must name what its claim would end: M1 rests on that."""
    if isinstance(answer.verdict, Rejected):
        return
    if claim.term < ghost.term:
        ghost.broken("I1", f"a probe would accept {claim.term} below {ghost.term}")
    named = [run.run_id for run in answer.fenced_runs]
    for process in ghost.processes:
        is_own = process.is_of(claim.term, claim.epoch.run_id)
        is_newer = process.load.coordinator_term > claim.term
        if not (is_own or is_newer or process.load.stage.run_id in named):
            ghost.broken("M1", f"a probe hides {process.load.stage.run_id}")


def _check_load_refusal(node: Node, load: LoadStage, reply: LoadFailed) -> None:
    if reply.refusal.reason in _LOAD_MISMATCHES and node.ghost.permits(load, node.now):
        node.ghost.broken("F1", f"a permitted load refused: {reply.refusal.text}")


def _check_stop_refusal(ghost: NodeGhost, stop: StopStage, reply: StopFailed) -> None:
    is_stale = reply.refusal.reason in {
        StopRefusalReason.STALE_TERM,
        StopRefusalReason.STALE_GENERATION,
    }
    for process in ghost.processes:
        if process.is_ending or stop.coordinator_term == 0:
            continue
        if is_stale and _is_meant(stop, process):
            ghost.broken("F1", f"a good stop refused: {reply.refusal.text}")


def check_shutdown(node: Node, process: GhostProcess, cause: Occurrence) -> None:
    """Check that something entitled ends a stage (I5, M1, and nothing without cause)."""
    if isinstance(cause, ProcessStarted):
        if node.ghost.permits(process.load, node.now):
            node.ghost.broken("F1", "a permitted load was not let become ready")
        return
    if not isinstance(cause, Delivery):
        node.ghost.broken("I5", f"{process.load.stage.run_id} ended by {cause!r}")
        return
    match cause.request:
        case StopStage() as stop:
            if not _is_meant(stop, process):
                node.ghost.broken("I5", f"{stop.stage.run_id} stopped another run")
            cause.sender.check_may_stop(process)
        case ClaimCoordinator(claim):
            _check_superseding(node, process, claim, cause)
        case LoadStage() as load:
            _check_replacement(node, process, load)
        case _:
            node.ghost.broken("I5", f"{process.load.stage.run_id} ended by {cause!r}")


def _check_replacement(node: Node, process: GhostProcess, load: LoadStage) -> None:
    is_newer = load.shutdown_generation > process.load.shutdown_generation
    is_same = load.stage == process.load.stage
    if not (is_same and is_newer and node.ghost.permits(load, node.now)):
        node.ghost.broken("I7", f"{load.stage.run_id} pushed a stage out")


def _is_meant(stop: StopStage, process: GhostProcess) -> bool:
    load = process.load
    return (
        stop.stage.topology_id == load.stage.topology_id
        and stop.stage.run_id == load.stage.run_id
        and stop.coordinator_term == load.coordinator_term
        and stop.shutdown_generation >= load.shutdown_generation
    )


def _check_superseding(
    node: Node, process: GhostProcess, claim: CoordinatorClaim, cause: Delivery
) -> None:
    run = (claim.term, claim.epoch.run_id)
    if process.is_of(*run) or process.load.coordinator_term > claim.term:
        node.ghost.broken("I5", f"claim {run} ended {process.load.stage.run_id}")
    if run != (node.ghost.term, node.ghost.run_id):
        node.ghost.broken("I5", f"claim {run} was not accepted and ended a stage")
    if run in node.ghost.stopped:
        node.ghost.broken("I13", f"a late claim of the stopped {run} ended a stage")
    if process.is_ready:
        cause.sender.check_may_end(claim, process)
