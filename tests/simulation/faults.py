"""Fault events doing their harm, and their end in liveness mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from simulation.schedule import FaultKind


if TYPE_CHECKING:
    from simulation.campaigners import Campaigner
    from simulation.node import Node
    from simulation.schedule import Fault
    from simulation.world import World


NOTICED_CUT_MS = 5_000
"""A cut that lasts longer is noticed by the coordinators as a lost peer."""

_HOLD_UP = frozenset({FaultKind.CUT, FaultKind.CLOG, FaultKind.PAUSE})


@attrs.define(eq=False, repr=False)
class FaultDue:
    """One fault event."""

    world: World
    fault: Fault

    def happen(self) -> None:
        """Do the harm."""
        world, fault = self.world, self.fault
        node = world.nodes[fault.node]
        world.touch(node)
        if fault.kind in _HOLD_UP:
            self._hold_up(node, world.now_ms + fault.amount)
            return
        match fault.kind:
            case FaultKind.CLOCK_JUMP:
                node.clocks.wall_offset_ms += fault.amount
            case FaultKind.CRASH:
                node.crash(fault.amount)
            case FaultKind.TEAR:
                node.arm_tear(fault.other, fault.amount)
            case FaultKind.FORGET:
                node.crash(fault.amount, forgets=True)
            case FaultKind.STAGE_DEATH:
                node.kill_stage()
            case _:
                pass

    def _hold_up(self, node: Node, until_ms: int) -> None:
        match self.fault.kind:
            case FaultKind.CUT:
                self._cut(node, until_ms)
            case FaultKind.CLOG:
                node.clogged_until_ms = until_ms
            case _:
                node.paused_until_ms = until_ms

    def _cut(self, node: Node, until_ms: int) -> None:
        world, fault = self.world, self.fault
        world.cuts[fault.node, fault.other] = until_ms
        if fault.amount <= NOTICED_CUT_MS:
            return
        far = world.nodes[fault.other]
        for campaigner in world.campaigners:
            if campaigner.home in (node, far):
                peer = far if campaigner.home is node else node
                lost = PeerNews(campaigner, peer, is_available=False)
                found = PeerNews(campaigner, peer, is_available=True)
                world.schedule(NOTICED_CUT_MS, lost)
                world.schedule(fault.amount + 1, found)

    def __repr__(self) -> str:
        return f"FAULT {self.fault}"


@attrs.define(eq=False, repr=False)
class PeerNews:
    """A long cut is noticed, or its end is."""

    campaigner: Campaigner
    peer: Node
    is_available: bool

    def happen(self) -> None:
        """Tell the coordinator; a node that is down is not found again yet."""
        is_there = self.is_available and self.peer.control is not None
        self.campaigner.peer_changed(self.peer, is_available=is_there)

    def __repr__(self) -> str:
        return f"{self.campaigner.name}: news of {self.peer.node_id}"


@attrs.define(eq=False, repr=False)
class Heal:
    """In liveness mode: from here on nothing new goes wrong."""

    world: World

    def happen(self) -> None:
        """End every fault."""
        self.world.heal()

    def __repr__(self) -> str:
        return "HEAL"


@attrs.define(eq=False, repr=False)
class Calm:
    """In liveness mode: from here on the rounds of the coordinators are counted."""

    world: World

    def happen(self) -> None:
        """Begin to count."""
        for campaigner in self.world.campaigners:
            campaigner.rounds_at_calm = campaigner.rounds

    def __repr__(self) -> str:
        return "CALM"
