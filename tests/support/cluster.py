"""A little cluster in memory: real stage sides and campaigns, a perfect clock and wire.

Requests and answers travel through one first-in-first-out queue, so that a story
always reads the same. What a shell would do (processes, routes, plans) is done at
once; `slow` nodes wait to be told. Everything that happens is written to `trace`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

from skippyd.core.coordinator import campaign_effects as outward
from skippyd.core.coordinator import control_effects as inward
from skippyd.core.coordinator.campaign import Campaign
from skippyd.core.coordinator.control import StageControl
from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.memory import (
    FenceRecord,
    FenceSnapshot,
    PersistFence,
    PersistQuarantine,
)
from skippyd.core.coordinator.messages import Origin, PreparationState
from skippyd.core.coordinator.run import CampaignPlan, PlannedStage
from skippyd.ids import CoordinatorId, NodeId, RunId, StageId, UnixMs
from support.claims import KEY, ready_status
from support.wording import describe_reply, describe_request


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.coordinator.claim import ClaimKey
    from skippyd.core.coordinator.messages import LoadStage, Reply, Request


LAYERS_PER_STAGE = 10


def plan_over(*node_names: str, may_replace: bool = False) -> CampaignPlan:
    """A plan that gives each named node ten layers, in the order of the names."""
    stages = tuple(
        PlannedStage(
            node_id=NodeId(name),
            stage_id=StageId(f"stage-{index}"),
            stage_index=index,
            layer_start=index * LAYERS_PER_STAGE,
            layer_end=(index + 1) * LAYERS_PER_STAGE,
            admission=f"admission of stage-{index}",
        )
        for index, name in enumerate(node_names)
    )
    names = "+".join(node_names)
    return CampaignPlan(
        key=KEY,
        stages=stages,
        participant_set_hash=f"participants {names}",
        topology_hash=f"topology {names}",
        may_replace=may_replace,
    )


@attrs.define(kw_only=True)
class Store:
    """What a node has on disk; its writes are durable at once."""

    instance_id: str
    is_quarantined: bool = False
    records: dict[ClaimKey, FenceRecord] = attrs.Factory(dict)

    def snapshot(self) -> FenceSnapshot:
        """What the fence is restored from."""
        return FenceSnapshot(
            instance_id=self.instance_id,
            is_quarantined=self.is_quarantined,
            records=tuple(self.records.values()),
        )


@attrs.define
class ClusterNode:
    """One node: its disk, its stage side and the coordinator that it may become."""

    name: str
    store: Store
    control: StageControl
    campaign: Campaign
    plan: CampaignPlan | None = None
    is_down: bool = False
    is_slow: bool = False
    preparing: LoadStage | None = None


@attrs.define
class Cluster:
    """Nodes and the wire between them; commands of stories are its methods."""

    names: tuple[str, ...]
    trace: list[str] = attrs.field(factory=list, init=False)
    now: Instant = attrs.field(default=Instant(UnixMs(0), 0), init=False)
    nodes: dict[str, ClusterNode] = attrs.field(factory=dict, init=False)
    routes: list[RunId] = attrs.field(factory=list, init=False)
    _cuts: set[frozenset[str]] = attrs.field(factory=set, init=False)
    _queue: deque[Callable[[], None]] = attrs.field(factory=deque, init=False)
    _asked: dict[int, tuple[str, Request]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for name in self.names:
            store = Store(instance_id=f"store of {name}")
            fence = ClaimFence.restore(store.snapshot(), self.now)
            campaign = Campaign(coordinator_id=CoordinatorId(name))
            self.nodes[name] = ClusterNode(name, store, StageControl(fence), campaign)

    def tell(self, name: str, event: outward.CampaignEvent) -> None:
        """Give an event to a node's coordinator and let everything come to rest."""
        self._queue.append(lambda: self._coordinate(self.nodes[name], event))
        self._run()

    def ask(self, sender: str, receiver: str, request: Request, origin: Origin) -> None:
        """Send one request by hand; only the answer is traced."""
        self._deliver(sender, receiver, request, origin)
        self._run()

    def happen(self, name: str, event: inward.ControlEvent) -> None:
        """Give an event to a node's stage side."""
        self._perform(self.nodes[name], event)
        self._run()

    def finish_preparation(self, name: str) -> None:
        """Let the last preparation of a node come to its end."""
        node = self.nodes[name]
        assert node.preparing is not None
        moved = inward.PreparationMoved(
            load=node.preparing, state=PreparationState.AVAILABLE
        )
        self._perform(node, moved)

    def advance(self, duration_ms: int) -> None:
        """Let time pass, waking nodes and coordinators at their deadlines."""
        end = self.now.later(duration_ms)
        while (deadline := self._next_deadline()) is not None:
            if deadline > end.boottime_ms:
                break
            self.now = self.now.later(max(0, deadline - self.now.boottime_ms))
            self._wake()
            self._run()
        self.now = end

    def step_wall_clock(self, offset_ms: int) -> None:
        """Set the wall clock, leaving boottime as it is."""
        self.now = attrs.evolve(self.now, unix_ms=UnixMs(self.now.unix_ms + offset_ms))

    def restart(self, name: str) -> None:
        """Start a node's daemon again from its disk: all its processes are gone."""
        node = self.nodes[name]
        node.control = StageControl(ClaimFence.restore(node.store.snapshot(), self.now))
        node.campaign = Campaign(coordinator_id=CoordinatorId(name))

    def cut(self, one: str, other: str) -> None:
        """Cut the wire between two nodes."""
        self._cuts.add(frozenset({one, other}))

    def heal(self) -> None:
        """Mend every wire."""
        self._cuts.clear()

    def _next_deadline(self) -> int | None:
        deadlines = [
            deadline
            for node in self.nodes.values()
            if not node.is_down
            for deadline in (
                node.control.next_deadline(),
                node.campaign.next_deadline(),
            )
            if deadline is not None
        ]
        return min(deadlines, default=None)

    def _wake(self) -> None:
        for node in self.nodes.values():
            if node.is_down:
                continue
            if _is_reached(node.control.next_deadline(), self.now):
                self._perform(node, inward.TimePassed())
            if _is_reached(node.campaign.next_deadline(), self.now):
                self._coordinate(node, outward.TimePassed())

    def _run(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def _say(self, text: str) -> None:
        self.trace.append(text)

    # What a coordinator's shell does.

    def _coordinate(self, node: ClusterNode, event: outward.CampaignEvent) -> None:
        for effect in node.campaign.offer(event, self.now):
            self._act(node, effect)

    def _act(self, node: ClusterNode, effect: outward.CampaignEffect) -> None:
        match effect:
            case outward.Send(node_id, request):
                self._say(f"{node.name} -> {node_id}: {describe_request(request)}")
                self._queue.append(
                    lambda: self._deliver(node.name, node_id, request, Origin.NETWORK)
                )
            case outward.RequestPlan():
                self._plan(node, effect)
            case outward.PersistTerm(term):
                self._say(f"{node.name} persists its own term {term}")
            case outward.ProveChain(run):
                self._prove(node, run.run_id)
            case outward.PublishRoute(run):
                self.routes = [run.run_id]
                self._say(f"{node.name} publishes {run.run_id}")
                self._later(node, outward.RoutePublished(run.run_id))
            case outward.WithdrawRoute(run_id):
                self.routes = [route for route in self.routes if route != run_id]
                self._say(f"{node.name} withdraws the route of {run_id}")
                self._later(node, outward.RouteWithdrawn(run_id))
            case outward.Report(step, message):
                self._say(f"{node.name} [{step.value}] {message}")

    def _later(self, node: ClusterNode, event: outward.CampaignEvent) -> None:
        self._queue.append(lambda: self._coordinate(node, event))

    def _plan(self, node: ClusterNode, effect: outward.RequestPlan) -> None:
        if node.plan is None:
            self._later(node, outward.PlanMissing("no plan is given"))
            return
        names = [name for name in node.plan.node_ids if name not in effect.excluded]
        if len(names) < 2:
            self._later(node, outward.PlanMissing("fewer than two nodes are left"))
            return
        plan = plan_over(*names, may_replace=node.plan.may_replace)
        self._later(node, outward.PlanMade(plan))

    def _prove(self, node: ClusterNode, run_id: RunId) -> None:
        assert node.campaign.attempt is not None
        planned = node.campaign.attempt.run.plan.node_ids
        silent = [name for name in planned if not self._runs(name, run_id)]
        if silent or any(self._is_cut(node.name, name) for name in planned):
            self._later(node, outward.ProofFailed(run_id, f"no token: {silent}"))
        else:
            self._later(node, outward.ChainProved(run_id))

    def _runs(self, name: str, run_id: RunId) -> bool:
        node = self.nodes[name]
        live = node.control.snapshot()
        return not node.is_down and any(s.load.stage.run_id == run_id for s in live)

    # The wire.

    def _is_cut(self, one: str, other: str) -> bool:
        return (
            self.nodes[one].is_down
            or self.nodes[other].is_down
            or frozenset({one, other}) in self._cuts
        )

    def _deliver(
        self, sender: str, receiver: str, request: Request, origin: Origin
    ) -> None:
        if self._is_cut(sender, receiver):
            self._say(f"{receiver} -x {sender}: unreachable")
            event = outward.RequestFailed(NodeId(receiver), request, "unreachable")
            self._later(self.nodes[sender], event)
            return
        request_id = len(self._asked)
        self._asked[request_id] = (sender, request)
        self._perform(
            self.nodes[receiver],
            inward.Received(request_id=request_id, request=request, origin=origin),
        )

    def _answer(self, node: ClusterNode, request_id: int, reply: Reply) -> None:
        sender, request = self._asked[request_id]
        self._say(f"{node.name} -> {sender}: {describe_reply(reply)}")
        self._later(
            self.nodes[sender], outward.Replied(NodeId(node.name), request, reply)
        )

    # What a node's shell does.

    def _perform(self, node: ClusterNode, event: inward.ControlEvent) -> None:
        for effect in node.control.offer(event, self.now):
            self._obey(node, effect)

    def _obey(self, node: ClusterNode, effect: inward.ControlEffect) -> None:
        match effect:
            case PersistFence(record):
                node.store.records[record.key] = record
                stopped = "".join(f", stopped {t.run_id}" for t in record.tombstones)
                self._say(f"{node.name} persists term {record.term}{stopped}")
            case PersistQuarantine():
                node.store.is_quarantined = False
                self._say(f"{node.name} persists the end of its quarantine")
            case inward.Answer(request_id, reply):
                self._answer(node, request_id, reply)
            case _:
                self._obey_about_stage(node, effect)

    def _obey_about_stage(
        self,
        node: ClusterNode,
        effect: inward.StartStage
        | inward.ShutDownStage
        | inward.StartPreparation
        | inward.CancelPreparation,
    ) -> None:
        match effect:
            case inward.StartStage(load):
                self._say(f"{node.name} starts {_name(load)}")
                if not node.is_slow:
                    ready = inward.StageBecameReady(load, ready_status(load))
                    self._queue.append(lambda: self._perform(node, ready))
            case inward.ShutDownStage(load, reason):
                self._say(f"{node.name} shuts {_name(load)} down: {reason}")
                if not node.is_slow:
                    ended = inward.StageEnded(load)
                    self._queue.append(lambda: self._perform(node, ended))
            case inward.StartPreparation(load):
                self._say(f"{node.name} prepares {_name(load)}")
                node.preparing = load
                if not node.is_slow:
                    self._queue.append(lambda: self.finish_preparation(node.name))
            case inward.CancelPreparation(load, reason):
                self._say(f"{node.name} drops {_name(load)} prepared: {reason}")


def _is_reached(deadline_ms: int | None, now: Instant) -> bool:
    return deadline_ms is not None and deadline_ms <= now.boottime_ms


def _name(load: LoadStage) -> str:
    return f"{load.stage.stage_id} of {load.stage.run_id}"
