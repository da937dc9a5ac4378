"""What must hold, kept outside the nodes: the ghost of every node and coordinator.

The ghost sees facts only (what became durable, what left a node, what lived and when)
and works out for itself what they allow. It knows nothing of the decisions of
`core.coordinator`: an error there cannot hide itself here. After every event the
world has the touched nodes checked; nothing else can have changed.

The invariants carry the names of parts 4.3 (I1 to I14, L1). Ours on top: M1, a
minority coordinator never ends a serving run; F1 and F2, nothing is refused that
the rules allow (so that a fence which refuses everything does not pass for safe).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from skippyd.core.coordinator.claim import CoordinatorClaim
    from skippyd.core.coordinator.instant import Instant
    from skippyd.core.coordinator.messages import LoadStage, StopStage


LEASE_CAP_MS = 4 * 60 * 60 * 1_000
HORIZON_NS = 366 * 24 * 60 * 60 * 1_000_000_000


class InvariantBrokenError(Exception):
    """An invariant does not hold; `name` is what the mutant table is sorted by."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


Identity = tuple[str, str, str, str, str]
"""Coordinator, topology, run and both hashes of a claim."""


def identity_of(claim: CoordinatorClaim) -> Identity:
    """Spell out what may exist once per node and term."""
    epoch = claim.epoch
    return (
        epoch.coordinator_id,
        epoch.topology_id,
        epoch.run_id,
        epoch.participant_set_hash,
        epoch.topology_hash,
    )


@attrs.define(eq=False)
class GhostProcess:
    """A stage process that exists, whatever the node believes about it."""

    load: LoadStage
    is_ready: bool = False
    is_ending: bool = False

    def is_of(self, term: int, run_id: str) -> bool:
        """Say whether the process belongs to a run."""
        return self.load.coordinator_term == term and self.load.stage.run_id == run_id


@attrs.define(eq=False)
class NodeGhost:
    """All that was ever seen of one node; `name` is for messages.

    The model is one and the same everywhere, so there is one line of claims.
    """

    name: str
    term: int = 0
    run_id: str = ""
    identity: Identity | None = None
    answered_term: int = 0
    lease_until_ms: int | None = None
    lease_deadline_ms: int = 0
    is_amnesic: bool = False
    votes_from_ms: int = 0
    identities: dict[int, Identity] = attrs.field(factory=dict)
    stopped: set[tuple[int, str]] = attrs.field(factory=set)
    processes: list[GhostProcess] = attrs.field(factory=list)

    def claim_became_durable(self, claim: CoordinatorClaim, now: Instant) -> None:
        """Take in that a new claim, or a longer lease, lies on the disk."""
        self._check_memory(claim, now)
        if claim.term < self.term:
            self.broken("I1", f"term fell from {self.term} to {claim.term}")
        if claim.term > max(self.term, now.unix_ms * 1_000_000) + HORIZON_NS:
            self.broken("I11", f"accepted the far term {claim.term}")
        self.bind_identity(claim)
        if claim.term > self.term:
            self.term, self.run_id = claim.term, claim.epoch.run_id
            self.identity = identity_of(claim)
            self.lease_until_ms, self.lease_deadline_ms = None, 0
        self.lease_granted(claim, now)

    def _check_memory(self, claim: CoordinatorClaim, now: Instant) -> None:
        """I10: who forgot votes again when no lease it granted can be left."""
        if not self.is_amnesic:
            return
        if now.boottime_ms < self.votes_from_ms:
            self.broken("I10", f"accepted term {claim.term} though it forgot")
        self.is_amnesic = False
        self.term, self.run_id, self.identity, self.answered_term = 0, "", None, 0
        self.identities.clear()
        self.stopped.clear()

    def bind_identity(self, claim: CoordinatorClaim) -> None:
        """I2: one identity for each term, for ever."""
        bound = self.identities.setdefault(claim.term, identity_of(claim))
        if bound != identity_of(claim):
            self.broken("I2", f"two identities at term {claim.term}")

    def lease_granted(self, claim: CoordinatorClaim, now: Instant) -> None:
        """Work out the lease; only a claim that ends later moves it, and only up.

        `now` is the moment at which the claim came in.
        """
        if claim.term != self.term:
            return
        until_ms = claim.lease_until_unix_ms
        if self.lease_until_ms is not None and until_ms <= self.lease_until_ms:
            return
        length_ms = min(until_ms - now.unix_ms, LEASE_CAP_MS)
        self.lease_until_ms = until_ms
        self.lease_deadline_ms = max(
            self.lease_deadline_ms, now.boottime_ms + length_ms
        )

    def is_lease_held(self, now: Instant) -> bool:
        """Say whether loads may start now."""
        return (
            self.lease_until_ms is not None
            and now.boottime_ms < self.lease_deadline_ms
            and now.unix_ms < self.lease_until_ms
        )

    def accept_left(
        self, claim: CoordinatorClaim, durable: CoordinatorClaim | None
    ) -> None:
        """An accept leaves the node: durable before that, and the old is gone."""
        if durable is None or durable.term < claim.term:
            self.broken("I1", f"accept of term {claim.term} left before it was durable")
        self.bind_identity(claim)
        if claim.term < self.answered_term:
            self.broken("I1", f"answered {claim.term} after {self.answered_term}")
        self.answered_term = claim.term
        for process in self.processes:
            if not process.is_of(claim.term, claim.epoch.run_id):
                run = process.load.stage.run_id
                self.broken("I3", f"{run} lives while {claim.term} is accepted")

    def permits(self, load: LoadStage, now: Instant) -> bool:
        """Say whether a fenced load may start, or become ready, at this moment."""
        return self.is_current(load) and self.is_lease_held(now)

    def is_current(self, load: LoadStage) -> bool:
        """Say whether a load is of the accepted claim, in all its fields."""
        identity = (
            load.coordinator_id,
            load.stage.topology_id,
            load.stage.run_id,
            load.participant_set_hash,
            load.topology_hash,
        )
        run = (load.coordinator_term, load.stage.run_id)
        return (
            load.coordinator_term == self.term
            and identity == self.identity
            and run not in self.stopped
        )

    def started(self, load: LoadStage, now: Instant, is_local: bool) -> GhostProcess:
        """A stage process starts."""
        if self.processes:
            self.broken("I7", f"a second runtime starts: {load.stage.run_id}")
        if load.coordinator_term == 0:
            self._check_unfenced(is_local, now)
        elif (load.coordinator_term, load.stage.run_id) in self.stopped:
            self.broken("I6", f"{load.stage.run_id} was stopped and starts again")
        elif not self.is_current(load):
            self.broken("I3", f"{load.stage.run_id} starts, not the accepted claim")
        elif not self.is_lease_held(now):
            self.broken("I4", f"{load.stage.run_id} starts without a lease")
        process = GhostProcess(load)
        self.processes.append(process)
        return process

    def _check_unfenced(self, is_local: bool, now: Instant) -> None:
        if not is_local:
            self.broken("I12", "an unfenced load from the network starts")
        is_stopped = (self.term, self.run_id) in self.stopped
        if self.identity is not None and self.is_lease_held(now) and not is_stopped:
            self.broken("I12", "an unfenced load starts while a claim is live")

    def became_ready(self, process: GhostProcess, now: Instant) -> None:
        """The node calls a stage ready."""
        is_unfenced = process.load.coordinator_term == 0
        if not is_unfenced and not self.permits(process.load, now):
            self.broken("I14", f"{process.load.stage.run_id} is ready, unchecked")
        process.is_ready = True

    def ready_left(self, load: LoadStage) -> None:
        """A StageReady leaves the node."""
        if not any(p.load == load and not p.is_ending for p in self.processes):
            self.broken("I14", f"{load.stage.run_id} called ready, not live")

    def stopped_left(self, stop: StopStage) -> None:
        """A StageStopped leaves the node: from now on that run is over here."""
        run = (stop.coordinator_term, stop.stage.run_id)
        for process in self.processes:
            if process.is_of(*run):
                self.broken("I6", f"{run[1]} lives though its stop was answered")
        if stop.coordinator_term > 0 and stop.coordinator_term >= self.term:
            self.stopped.add(run)

    def frame_answered(self, term: int) -> None:
        """A stage of a run answers a frame."""
        if 0 < term < self.answered_term:
            self.broken("I9", f"a frame of {term} answered beside {self.answered_term}")

    def ended(self, process: GhostProcess) -> None:
        """A stage process is reaped."""
        self.processes.remove(process)

    def daemon_started(self, now: Instant) -> None:
        """The daemon starts: the time without a vote begins anew."""
        self.votes_from_ms = now.boottime_ms + LEASE_CAP_MS

    def restarted(self, *, forgot: bool) -> None:
        """The node's process is new: no stages, no leases; its disk may be lost."""
        self.processes.clear()
        self.lease_until_ms, self.lease_deadline_ms = None, 0
        self.is_amnesic = self.is_amnesic or forgot

    def check(self, durable_term: int) -> None:
        """Check everything about the state itself (I1, I3, I6, I7)."""
        if durable_term != self.term and not self.is_amnesic:
            self.broken("I1", f"the disk says {durable_term}, it was {self.term}")
        if len(self.processes) > 1:
            self.broken("I7", "two runtimes of one model live")
        for process in self.processes:
            if not process.is_ending:
                self._check_live(process)

    def _check_live(self, process: GhostProcess) -> None:
        load = process.load
        if load.coordinator_term == 0:
            return
        if not process.is_of(self.term, self.run_id):
            self.broken("I3", f"{load.stage.run_id} lives beside term {self.term}")
        if (load.coordinator_term, load.stage.run_id) in self.stopped:
            self.broken("I6", f"{load.stage.run_id} lives though it was stopped")

    def broken(self, name: str, text: str) -> None:
        """Report a broken invariant of this node."""
        raise InvariantBrokenError(name, f"{self.name}: {text}")
