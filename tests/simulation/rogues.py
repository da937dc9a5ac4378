"""Coordinators that keep no rule: old ones that come back, hasty ones, strangers.

They send again what anybody once sent, claim without asking, use terms nobody could
have, stop what is not theirs and load what was never claimed. A fence must bear all
of it; only the promises of honest coordinators do not hold for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from simulation.clocks import EPOCH_UNIX_MS
from simulation.coordinators import Coordinator
from simulation.occurrences import RogueWake
from simulation.plans import MODEL_KEY
from simulation.schedule import FaultClass
from skippyd.core.coordinator.claim import ClaimEpoch, CoordinatorClaim
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    LoadStage,
    Origin,
    StageKey,
    StopStage,
)
from skippyd.core.coordinator.verdict import Accepted, Superseded
from skippyd.ids import CoordinatorId, RunId, StageId, Term, TopologyId, UnixMs


if TYPE_CHECKING:
    from simulation.node import Node
    from skippyd.core.coordinator.messages import Reply, Request


MEAN_PAUSE_MS = 4_000

NS_PER_MS = 1_000_000

YEAR_NS = 367 * 24 * 60 * 60 * 1_000_000_000


@attrs.define(eq=False, kw_only=True)
class Rogue(Coordinator):
    """Does one wrong thing after another."""

    claim: CoordinatorClaim | None = None
    _run_count: int = 0

    def begin(self) -> None:
        """Wait for the first wrong thing."""
        pause_ms = int(self.world.rng.expovariate(1 / MEAN_PAUSE_MS)) + 1
        self.world.schedule(pause_ms, RogueWake(self))

    def wake(self) -> None:
        """Do one wrong thing."""
        if self.world.is_healed:
            return
        self.begin()
        rng, classes = self.world.rng, self.world.schedule_.classes
        node = rng.choice(self.world.nodes)
        if FaultClass.ROGUES not in classes:
            self._load_unfenced(node)
            return
        match rng.randrange(8):
            case 0 | 1 | 2:
                self._repeat_old()
            case 3:
                self._claim_anew()
            case 4:
                self._stop(node)
            case 5:
                self._change_old(node)
            case 6 if FaultClass.UNFENCED in classes:
                self._load_unfenced(node)
            case _:
                self._renew(node)

    def replied(self, node: Node, request: Request, reply: Reply) -> None:
        """Load at once wherever its claim is accepted: no quorum, no order."""
        match request, reply:
            case ClaimCoordinator(claim), ClaimAnswer(verdict=verdict):
                if isinstance(verdict, Accepted | Superseded):
                    self.send(node, self._load(node, claim))
            case _:
                pass

    def _repeat_old(self) -> None:
        history = self.world.history
        if history:
            node, request = self.world.rng.choice(history)
            self.send(node, request)

    def _change_old(self, node: Node) -> None:
        """Send what another sent, in one respect as one's own."""
        history = self.world.history
        if not history:
            return
        _, request = self.world.rng.choice(history)
        match request:
            case LoadStage():
                generation = request.shutdown_generation + 1
                changed: LoadStage = self.world.rng.choice(
                    (
                        attrs.evolve(request, shutdown_generation=generation),
                        attrs.evolve(request, coordinator_id=CoordinatorId("nx")),
                        attrs.evolve(request, topology_hash="other"),
                    )
                )
                self.send(node, changed)
            case ClaimCoordinator(claim):
                epoch = attrs.evolve(claim.epoch, topology_hash="other")
                self.send(node, ClaimCoordinator(attrs.evolve(claim, epoch=epoch)))
            case _:
                self.send(node, request)

    def _claim_anew(self) -> None:
        rng = self.world.rng
        self._run_count += 1
        now_ns = (EPOCH_UNIX_MS + self.world.now_ms) * NS_PER_MS
        term = now_ns + rng.choice((0, -3_600_000, 0, 5 * 10**12, YEAR_NS, 2**63))
        until_ms = (
            EPOCH_UNIX_MS + self.world.now_ms + rng.choice((3_000, 30_000, 10**8))
        )
        name = f"rogue-{self._run_count}"
        self.claim = CoordinatorClaim(
            epoch=ClaimEpoch(
                key=MODEL_KEY,
                topology_id=TopologyId(f"topology-{name}"),
                run_id=RunId(name),
                coordinator_id=CoordinatorId("nx"),
                participant_set_hash="p",
                topology_hash="t",
            ),
            term=Term(term),
            lease_until_unix_ms=UnixMs(until_ms),
        )
        for node in self.world.nodes:
            if rng.random() < 0.6:
                self.send(node, ClaimCoordinator(self.claim))

    def _renew(self, node: Node) -> None:
        """Claim again what anybody claimed, with another lease."""
        rng = self.world.rng
        claims = [
            r.claim for _, r in self.world.history if isinstance(r, ClaimCoordinator)
        ]
        if not claims:
            return
        claim = rng.choice(claims)
        change_ms = rng.choice((-10_000_000, -20_000, 1_000, 60_000))
        until_ms = UnixMs(claim.lease_until_unix_ms + change_ms)
        renewed = attrs.evolve(claim, lease_until_unix_ms=until_ms)
        self.send(node, ClaimCoordinator(renewed))

    def _stop(self, node: Node) -> None:
        """Stop a run that somebody loaded, at its term or another, anywhere."""
        rng = self.world.rng
        loads = [r for _, r in self.world.history if isinstance(r, LoadStage)]
        if not loads:
            return
        load = rng.choice(loads)
        stop = StopStage(
            key=load.key,
            stage=load.stage,
            coordinator_term=Term(
                max(0, load.coordinator_term + rng.choice((0, 0, -1, 1)))
            ),
            shutdown_generation=load.shutdown_generation + rng.choice((0, 0, -1, 1)),
        )
        self.send(node, stop)

    def _load_unfenced(self, node: Node) -> None:
        """Load without a claim: from the network, or over a node's admin socket."""
        self._run_count += 1
        if self.world.rng.random() < 0.5:
            self.send(node, self._unfenced(f"stranger-{self._run_count}"))
            return
        load = self._unfenced(f"local-{self._run_count}")
        self.send(self.home, load, Origin.ADMIN)
        if self.world.rng.random() < 0.5:
            stop = StopStage(
                key=MODEL_KEY,
                stage=load.stage,
                coordinator_term=Term(0),
                shutdown_generation=1,
            )
            self.send(self.home, stop, Origin.ADMIN)

    def _unfenced(self, run: str) -> LoadStage:
        return LoadStage(
            key=MODEL_KEY,
            stage=_stage_key(TopologyId(f"topology-{run}"), RunId(run)),
            coordinator_term=Term(0),
            coordinator_id=None,
            shutdown_generation=1,
            stage_index=0,
            layer_start=0,
            layer_end=8,
            admission="local",
        )

    def _load(self, node: Node, claim: CoordinatorClaim) -> LoadStage:
        epoch = claim.epoch
        return LoadStage(
            key=epoch.key,
            stage=_stage_key(epoch.topology_id, epoch.run_id),
            coordinator_term=claim.term,
            coordinator_id=epoch.coordinator_id,
            participant_set_hash=epoch.participant_set_hash,
            topology_hash=epoch.topology_hash,
            shutdown_generation=1,
            stage_index=node.index,
            layer_start=0,
            layer_end=8,
            admission="rogue",
        )


def _stage_key(topology_id: TopologyId, run_id: RunId) -> StageKey:
    return StageKey(topology_id=topology_id, run_id=run_id, stage_id=StageId("stage-0"))
