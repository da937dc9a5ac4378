"""The world of one schedule: the heap, the network, the faults, the nodes.

One `random.Random`, seeded once, decides everything in the order in which it happens,
so a seed is a whole history. After every event the nodes it touched are checked; what
was not touched cannot have changed (a test compares with checking all).
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from math import log
from typing import TYPE_CHECKING

import attrs

from simulation.campaigners import Campaigner
from simulation.clocks import NodeClocks
from simulation.faults import Calm, FaultDue, Heal
from simulation.ghost import InvariantBrokenError, NodeGhost
from simulation.node import Node
from simulation.occurrences import Delivery, ReplyDelivery, RequestLost
from simulation.plans import MODEL_KEY, draw_plan
from simulation.rogues import Rogue
from simulation.schedule import CALM_MS, HEAL_MS, FaultClass
from simulation.store import SimulatedStore
from skippyd.ids import CoordinatorId, NodeId


if TYPE_CHECKING:
    import random

    from simulation.coordinators import Coordinator
    from simulation.occurrences import Occurrence, TokenHop
    from simulation.schedule import Schedule
    from skippyd.core.coordinator.claim import ClaimKey
    from skippyd.core.coordinator.messages import LoadStage, Origin, Reply, Request
    from skippyd.core.coordinator.run import CampaignPlan


BOOT_MS = 5_000_000

TRACE_LENGTH = 50

_REPORTED_LOSSES = 0.7

_HISTORY_LENGTH = 400


@attrs.define(eq=False)
class World:
    """One schedule under way."""

    schedule_: Schedule
    rng: random.Random
    now_ms: int = 0
    event_count: int = 0
    frame_count: int = 0
    key: ClaimKey = MODEL_KEY
    is_healed: bool = False
    checks_all: bool = False
    nodes: list[Node] = attrs.field(factory=list)
    campaigners: list[Campaigner] = attrs.field(factory=list)
    cuts: dict[tuple[int, int], int] = attrs.field(factory=dict)
    history: list[tuple[Node, Request]] = attrs.field(factory=list)
    trace: deque[tuple[int, Occurrence]] = attrs.field(init=False)
    _heap: list[tuple[int, int, Occurrence]] = attrs.field(factory=list)
    _sequence: int = 0
    _touched: list[Node] = attrs.field(factory=list)
    _nodes_by_id: dict[str, Node] = attrs.field(factory=dict)
    _planned: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    _loading: dict[tuple[int, frozenset[str]], str] = attrs.field(factory=dict)
    _trouble: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        schedule = self.schedule_
        self.trace = deque(maxlen=TRACE_LENGTH)
        self._trouble = schedule.loss + schedule.duplication + schedule.slowness
        for index in range(schedule.node_count):
            self._add_node(index)
        for index in range(schedule.coordinator_count):
            self._add_coordinator(index)
        if FaultClass.ROGUES in schedule.classes or (
            FaultClass.UNFENCED in schedule.classes
        ):
            self._add_rogue()
        for fault in schedule.faults:
            self.schedule(fault.at_ms, FaultDue(self, fault))
        if schedule.is_liveness:
            self.schedule(HEAL_MS, Heal(self))
            self.schedule(CALM_MS, Calm(self))

    def _add_node(self, index: int) -> None:
        node_id = NodeId(f"n{index}")
        schedule = self.schedule_
        offset_ms = schedule.wall_offsets_ms[index]
        node = Node(
            world=self,
            index=index,
            node_id=node_id,
            clocks=NodeClocks(schedule.drifts_ppm[index], BOOT_MS, offset_ms),
            store=SimulatedStore(f"{node_id}-0"),
            ghost=NodeGhost(node_id),
        )
        self.nodes.append(node)
        self._nodes_by_id[node_id] = node

    def _add_coordinator(self, index: int) -> None:
        home = self.nodes[index]
        campaigner = Campaigner(world=self, name=f"c{index}", home=home)
        self.campaigners.append(campaigner)
        campaigner.home_restarted()

    def _add_rogue(self) -> None:
        home = self.nodes[self.rng.randrange(len(self.nodes))]
        rogue = Rogue(world=self, name="rogue", home=home)
        rogue.begin()

    # The heap.

    def schedule(self, delay_ms: int, occurrence: Occurrence) -> None:
        """Let something happen after a while."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (self.now_ms + delay_ms, sequence, occurrence))

    def run(self) -> None:
        """Run to the horizon; raises `InvariantBrokenError` at the first bad event."""
        heap, trace, touched = self._heap, self.trace, self._touched
        horizon_ms = self.schedule_.horizon_ms
        while heap:
            at_ms, _, occurrence = heappop(heap)
            if at_ms > horizon_ms:
                break
            self.now_ms = at_ms
            self.event_count += 1
            trace.append((at_ms, occurrence))
            occurrence.happen()
            if self.checks_all:
                touched.extend(self.nodes)
            if touched:
                for node in touched:
                    node.check()
                touched.clear()

    def pass_time(self, duration_ms: int) -> None:
        """Let only what is due within a while happen; for stories."""
        end_ms = self.now_ms + duration_ms
        while self._heap and self._heap[0][0] <= end_ms:
            self._step(*heappop(self._heap))
        self.now_ms = end_ms

    def _step(self, at_ms: int, sequence: int, occurrence: Occurrence) -> None:
        self.now_ms = at_ms
        self.trace.append((at_ms, occurrence))
        occurrence.happen()
        for node in self.nodes:
            node.check()

    def touch(self, node: Node) -> None:
        """Have a node checked after the event under way."""
        self._touched.append(node)

    # The network.

    def send_request(
        self,
        coordinator: Coordinator,
        node: Node,
        number: int,
        request: Request,
        origin: Origin,
    ) -> None:
        """Put a request on the network, as often as it arrives."""
        if len(self.history) < _HISTORY_LENGTH:
            self.history.append((node, request))
        delivery = Delivery(node, coordinator, number, request, origin)
        self._transmit(coordinator.home, node, delivery, coordinator, number)

    def send_reply(self, node: Node, asked: Delivery, reply: Reply) -> None:
        """Put a reply on the network."""
        coordinator = asked.sender
        delivery = ReplyDelivery(coordinator, asked.number, node, reply)
        self._transmit(node, coordinator.home, delivery, coordinator, asked.number)

    def _transmit(
        self,
        source: Node,
        target: Node,
        occurrence: Occurrence,
        coordinator: Coordinator,
        number: int,
    ) -> None:
        if source is target:
            self.schedule(0, occurrence)
            return
        delay_ms = self._have_trouble(self._draw_delay(), occurrence)
        if delay_ms is None or self._is_cut(source, target):
            self._lose(coordinator, number)
            return
        if source.clogged_until_ms > self.now_ms:
            delay_ms += source.clogged_until_ms - self.now_ms
        if target.clogged_until_ms > self.now_ms:
            delay_ms += target.clogged_until_ms - self.now_ms
        self.schedule(delay_ms, occurrence)

    def _draw_delay(self) -> int:
        return int(-log(1.0 - self.rng.random()) * self.schedule_.mean_delay_ms) + 1

    def _have_trouble(self, delay_ms: int, occurrence: Occurrence) -> int | None:
        """Lose, double or hold up a message, seldom; None means that it is lost."""
        if not self._trouble:
            return delay_ms
        schedule, draw = self.schedule_, self.rng.random()
        if draw >= self._trouble:
            return delay_ms
        if draw < schedule.loss:
            return None
        if draw < schedule.loss + schedule.duplication:
            again_ms = self.rng.choice((delay_ms, 5_000, 30_000))
            self.schedule(again_ms + self._draw_delay(), occurrence)
            return delay_ms
        return delay_ms + self.rng.randrange(5_000, 40_000)

    def _is_cut(self, source: Node, target: Node) -> bool:
        return (
            bool(self.cuts)
            and self.cuts.get((source.index, target.index), 0) > self.now_ms
        )

    def _lose(self, coordinator: Coordinator, number: int) -> None:
        if self.rng.random() < _REPORTED_LOSSES:
            lost = RequestLost(coordinator, coordinator.incarnation, number)
            self.schedule(self.rng.randrange(500, 10_000), lost)

    def token_arrived(self, hop: TokenHop) -> None:
        """A token reaches a stage: it goes on, or ends with a failure."""
        token, node = hop.token, hop.node
        failure: str | None = None
        if node.control is None:
            failure = f"{node.node_id} is gone"
        elif not node.is_running(hop):
            return
        elif node.live_process(token.run.term, token.run_id) is None:
            failure = f"{node.node_id} does not serve this run"
        else:
            node.ghost.frame_answered(token.run.term)
            self.frame_count += 1
            if hop.index + 1 < len(token.hops):
                following = token.hops[hop.index + 1]
                if not self._is_cut(node, following.node):
                    self.schedule(self._draw_delay(), following)
                    return
                failure = "the wire is cut"
        token.coordinator.token_ended(token, failure)

    # What the shells need to know.

    def node_of(self, node_id: str) -> Node:
        """Return a node by its id."""
        return self._nodes_by_id[node_id]

    def plan(self, home: Node, excluded: tuple[str, ...]) -> CampaignPlan | None:
        """Plan a chain for a coordinator, without some nodes."""
        plan = draw_plan(self, home, excluded)
        if plan is not None:
            self._planned[plan.topology_hash] = plan.node_ids
        return plan

    def planned_by(self, topology_hash: str) -> tuple[str, ...]:
        """Return the planned nodes behind a topology hash, in stage order."""
        return self._planned[topology_hash]

    def check_exclusion(self, load: LoadStage, planned: tuple[str, ...]) -> None:
        """I8: runs of one term and one planned set never both load."""
        place = (load.coordinator_term, frozenset(planned))
        run_id = self._loading.setdefault(place, load.stage.run_id)
        if run_id != load.stage.run_id:
            raise InvariantBrokenError("I8", f"{run_id} and {load.stage.run_id} load")

    def echo(self, admission: str) -> str:
        """Return what a stage says it opened; seldom it is something else."""
        is_false = self._has(FaultClass.FALSE_ECHO) and self.rng.random() < 0.05
        return f"not {admission}" if is_false else admission

    def draw_load(self) -> tuple[int, bool]:
        """Draw how long a stage takes to start, and whether it fails instead."""
        fails = self._has(FaultClass.STAGE_DEATHS) and self.rng.random() < 0.05
        length_ms = -log(1.0 - self.rng.random()) * self.schedule_.mean_load_ms
        return int(min(length_ms, 50_000)) + 200, fails

    def preparation_cancelled(self) -> None:
        """A node gave a preparation up; nothing follows from that here."""

    def draw_reaping_ms(self) -> int:
        """Draw how long a stage takes to die; seldom longer than claims wait."""
        if self._has(FaultClass.SLOW_REAPING) and self.rng.random() < 0.3:
            return self.rng.randrange(2_000, 12_000)
        return self.rng.randrange(1, 300)

    def draw_preparation_ms(self) -> int:
        """Draw how long a preparation takes."""
        return int(-log(1.0 - self.rng.random()) * 1_000) + 10

    def _has(self, fault_class: FaultClass) -> bool:
        return fault_class in self.schedule_.classes and not self.is_healed

    # What goes wrong, as the coordinators hear of it.

    def node_crashed(self, node: Node) -> None:
        """A daemon ended: its coordinator with it, the others hear of it."""
        for campaigner in self.campaigners:
            if campaigner.home is node:
                campaigner.home_crashed()
            else:
                campaigner.peer_changed(node, is_available=False)

    def node_restarted(self, node: Node) -> None:
        """A daemon is back."""
        for campaigner in self.campaigners:
            if campaigner.home is node:
                campaigner.home_restarted()
            else:
                campaigner.peer_changed(node, is_available=True)

    def stage_gone(self, node: Node, load: LoadStage, *, is_fenced: bool) -> None:
        """A stage ended without being stopped: its coordinator sees it by status."""
        for campaigner in self.campaigners:
            if CoordinatorId(campaigner.home.node_id) == load.coordinator_id:
                campaigner.stage_lost(node, load.stage.run_id, is_fenced=is_fenced)

    def heal(self) -> None:
        """End every fault; what is down comes back on its own."""
        self.is_healed = True
        self._trouble = 0.0
        self.cuts.clear()
        for node in self.nodes:
            node.paused_until_ms = node.clogged_until_ms = 0
            node.disarm()
