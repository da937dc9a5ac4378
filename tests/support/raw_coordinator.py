"""A coordinator played by hand: claims and loads over a control connection of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from skippyd.coordination.control_frames import frame_of
from skippyd.coordination.control_json import command_of, request_to_json
from skippyd.coordination.ports import FEATURES, GENERATION
from skippyd.core.coordinator.claim import ClaimEpoch, CoordinatorClaim
from skippyd.core.coordinator.instant import MAX_LEASE_MS
from skippyd.core.coordinator.messages import (
    ClaimCoordinator,
    LoadStage,
    ProbeClaim,
    StopStage,
)
from skippyd.daemon.clock import read_instant
from skippyd.ids import CoordinatorId, NodeId, RunId, Term, TopologyId, UnixMs
from support.raw_control import RawControl, connect_here


if TYPE_CHECKING:
    import socket
    from collections.abc import Callable
    from pathlib import Path

    from skippyd.coordination.ports import StageRunSettings
    from skippyd.core.coordinator.messages import Request
    from support.stage_nodes import Plan

DEADLINE_MS = 15_000


@attrs.define(eq=False)
class RawCoordinator:
    """Speaks as one node to another; `open` has said hello.

    Args:
        control: The connection.
        node_id: Whose key it shows.
        plan: The model and its split.
    """

    control: RawControl
    node_id: str
    plan: Plan

    @classmethod
    def open(
        cls,
        port: int,
        state: Path,
        node_id: str,
        plan: Plan,
        *,
        connect: Callable[[int], socket.socket] = connect_here,
    ) -> RawCoordinator:
        """Connect with the key of a state directory, and say hello."""
        control = RawControl(port, state, connect)
        assert " 101 " in control.upgrade()
        control.say("hello", _hello(node_id))
        assert "result" in control.answer()
        return cls(control, node_id, plan)

    def claim(
        self,
        term: int,
        *,
        lease_ms: int = MAX_LEASE_MS,
        run: str = "",
        topology_hash: str = "topology",
        participant_set_hash: str = "participants",
    ) -> dict[str, Any]:
        """Claim; return the whole answer.

        Args:
            term: Names the run too, unless `run` does.
            lease_ms: From now on.
            run: Another run of the same term.
            topology_hash: Another topology.
            participant_set_hash: Other participants.

        Raises:
            OSError: The connection ended instead.
        """
        claim = self._claim(term, lease_ms)
        epoch = attrs.evolve(
            claim.epoch,
            run_id=RunId(run or claim.epoch.run_id),
            topology_hash=topology_hash,
            participant_set_hash=participant_set_hash,
        )
        return self._ask(ClaimCoordinator(attrs.evolve(claim, epoch=epoch)), None)

    def probe(self, term: int) -> dict[str, Any]:
        """Ask what a claim would be told; for `claim`'s errors."""
        return self._ask(ProbeClaim(self._claim(term, MAX_LEASE_MS)), None)

    def load(self, term: int, index: int) -> dict[str, Any]:
        """Load a stage; return the whole answer, for `claim`'s errors."""
        return self._ask(self._load(term, index), self.plan.settings())

    def load_unfenced(self, index: int) -> dict[str, Any]:
        """Load a stage without term and coordinator; for `claim`'s errors."""
        load = attrs.evolve(
            self._load(0, index),
            coordinator_id=None,
            participant_set_hash="",
            topology_hash="",
        )
        return self._ask(load, self.plan.settings())

    def stop(self, term: int, index: int) -> dict[str, Any]:
        """Stop a stage; return the whole answer, for `claim`'s errors."""
        load = self._load(term, index)
        stop = StopStage(
            key=load.key,
            stage=load.stage,
            coordinator_term=load.coordinator_term,
            shutdown_generation=load.shutdown_generation,
        )
        return self._ask(stop, None)

    def _load(self, term: int, index: int) -> LoadStage:
        return attrs.evolve(
            self.plan.load(term, index), coordinator_id=CoordinatorId(self.node_id)
        )

    def _ask(
        self, request: Request, settings: StageRunSettings | None
    ) -> dict[str, Any]:
        command = request_to_json(request, settings)
        self.control.say(
            command_of(request), frame_of(NodeId(self.node_id), DEADLINE_MS, command)
        )
        return self.control.answer()

    def _claim(self, term: int, lease_ms: int) -> CoordinatorClaim:
        epoch = ClaimEpoch(
            key=self.plan.key,
            topology_id=TopologyId(f"topology-run-{term}"),
            run_id=RunId(f"run-{term}"),
            coordinator_id=CoordinatorId(self.node_id),
            participant_set_hash="participants",
            topology_hash="topology",
        )
        lease_until = UnixMs(read_instant().unix_ms + lease_ms)
        return CoordinatorClaim(
            epoch=epoch, term=Term(term), lease_until_unix_ms=lease_until
        )


def _hello(node_id: str) -> dict[str, object]:
    return {
        "generation": GENERATION,
        "requester_id": node_id,
        "features": list(FEATURES),
        "version": "0.1.0",
        "name": "coordinator",
    }
