"""Whole nodes in memory: the real coordination over a network that can be cut.

Every node has a stage side with the real rules, the real rollouts, failover and route
table; only processes, the wire, the disk and the planner are stand-ins. On trio's
virtual clock hours take milliseconds.
"""

from __future__ import annotations

import itertools
from contextlib import asynccontextmanager
from random import Random  # noqa: TID251 - seeded by whoever gives it
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.failover import ChainWatch
from skippyd.coordination.ports import (
    NodeChanged,
    NodeUnreachableError,
    PeerInfo,
    StageRunSettings,
)
from skippyd.coordination.rollout_events import EventLog
from skippyd.coordination.rollout_parts import RolloutParts
from skippyd.coordination.rollout_wishes import Wish
from skippyd.coordination.rollouts import Rollouts
from skippyd.coordination.route import RouteTable
from skippyd.coordination.route_announcing import RouteAnnouncer
from skippyd.core.coordinator.instant import Instant
from skippyd.core.coordinator.messages import LoadStage, Origin, Reply, Request
from skippyd.errors import SkippyError
from skippyd.ids import NodeId, RunId, UnixMs
from support.async_plans import AsyncPlans
from support.async_stage_side import AsyncStageSide
from support.async_wire import MemoryInMemory, Wire
from support.claims import KEY


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from skippyd.coordination.ports import NodeReport, Route

EPOCH_UNIX_MS = 1_700_000_000_000
BOOT_MS = 5_000_000
MODEL = str(KEY.model_id)
SHA256 = KEY.manifest_sha256
NOTICED_S = 0.5
"""After so long a broken connection is noticed."""


def virtual_instant() -> Instant:
    """Both clocks, run by trio's."""
    now_ms = int(trio.current_time() * 1_000)
    return Instant(UnixMs(EPOCH_UNIX_MS + now_ms), BOOT_MS + now_ms)


def wish_of_model(
    deployed_by: str, *, context: int | None = None, node_ids: tuple[NodeId, ...] = ()
) -> Wish:
    """The wish for the model that everybody has."""
    return Wish(
        model_id=MODEL,
        model_sha256=SHA256,
        deployed_by=NodeId(deployed_by),
        context=context,
        node_ids=node_ids,
    )


@attrs.define(eq=False, kw_only=True)
class AsyncNode:
    """One node: what survives a crash, and the daemon while it runs; a `Nodes` too."""

    cluster: AsyncCluster
    own_id: NodeId
    stages: AsyncStageSide
    memory: MemoryInMemory = attrs.Factory(MemoryInMemory)
    routes: RouteTable = attrs.field(init=False)
    rollouts: Rollouts = attrs.field(init=False)
    log: EventLog = attrs.field(init=False)
    active: dict[RunId, int] = attrs.Factory(dict)
    available: dict[NodeId, bool] = attrs.Factory(dict)
    _subscribers: list[trio.MemorySendChannel[NodeChanged]] = attrs.Factory(list)
    _scope: trio.CancelScope | None = None
    _coordinating: trio.CancelScope = attrs.Factory(trio.CancelScope)

    @property
    def is_up(self) -> bool:
        """Whether its daemon runs."""
        return self.stages.control is not None

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Be a daemon until crashed."""
        self._build()
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.stages.run)
                await nursery.start(self._coordinate)
                task_status.started()
                self.cluster.look()

    async def _coordinate(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.CancelScope() as self._coordinating:
            await self.rollouts.run(task_status=task_status)

    def freeze(self) -> None:
        """Let its coordinator do nothing any more, while its stages work on."""
        self._coordinating.cancel()

    def crash(self) -> None:
        """End the daemon and everything it started."""
        self._subscribers.clear()
        self.stages.crash()
        if self._scope is not None:
            self._scope.cancel()
        self.cluster.look()

    def _build(self) -> None:
        self._subscribers.clear()
        self.log = EventLog()
        self.routes = RouteTable(self.own_id)
        cluster = self.cluster
        self.rollouts = Rollouts(
            RolloutParts(
                nodes=self,
                plans=AsyncPlans(self, cluster),
                memory=self.memory,
                routes=self.routes,
                announcer=RouteAnnouncer(self),
                guard=ChainWatch(
                    nodes=self,
                    routes=self.routes,
                    is_serving=self._is_serving,
                    clock=virtual_instant,
                    watch_s=cluster.look_s,
                ),
                log=self.log,
                clock=virtual_instant,
                active_requests=lambda run_id: self.active.get(run_id, 0),
                jitter=cluster.jitter,
                draw_key=lambda: f"{next(cluster.keys):064x}",
                look_s=cluster.look_s,
                settle_s=2.0,
            )
        )

    async def _is_serving(self, route: Route) -> bool:
        await trio.sleep(0.01)
        first = self.cluster.nodes[route.node_ids[0]]
        if self.cluster.wire.is_cut(self.own_id, first.own_id) or not first.is_up:
            return False
        return self.cluster.is_whole(route.node_ids, route.run_id)

    # Nodes.

    def peers(self) -> tuple[PeerInfo, ...]:
        """See `Nodes`."""
        reports = self.reports()
        return tuple(
            PeerInfo(
                node_id=node_id,
                name=f"name of {node_id}",
                address=f"{node_id}:1",
                is_available=node_id in reports,
                rtt_ms=1.0,
                interface="lo",
                local_address="127.0.0.1",
                report=reports.get(node_id),
                last_heard_unix_ms=None,
                reason="" if node_id in reports else "connection broken",
            )
            for node_id in self.cluster.nodes
            if node_id != self.own_id
        )

    def reports(self) -> Mapping[NodeId, NodeReport]:
        """See `Nodes`; what a node says is not older than the wire is slow."""
        return {
            node_id: node.stages.report()
            for node_id, node in self.cluster.nodes.items()
            if node.is_up and (node is self or self.available.get(node_id, False))
        }

    async def request(
        self,
        node_id: NodeId,
        request: Request,
        settings: StageRunSettings | None = None,
        *,
        timeout_s: float,
    ) -> Reply:
        """See `Nodes`."""
        node = self.cluster.nodes[node_id]
        if node is self:
            return await self.stages.request(
                request, origin=Origin.NETWORK, settings=settings
            )
        self.cluster.sent.append((self.own_id, node_id, request))
        wire = self.cluster.wire
        with trio.move_on_after(timeout_s):
            if await wire.carry(self.own_id, node_id):
                try:
                    reply = await node.stages.request(
                        request, origin=Origin.NETWORK, settings=settings
                    )
                except SkippyError as error:
                    raise NodeUnreachableError(str(error)) from error
                if await wire.carry(node_id, self.own_id):
                    return reply
            await trio.sleep(NOTICED_S)
            raise NodeUnreachableError(f"the connection to {node_id} broke")
        raise NodeUnreachableError(f"{node_id} did not answer in {timeout_s:g} s")

    async def measure_latency_ms(
        self, node_id: NodeId, targets: Sequence[NodeId]
    ) -> Mapping[NodeId, float]:
        """See `Nodes`."""
        await trio.lowlevel.checkpoint()
        return dict.fromkeys(targets, 1.0)

    async def announce_route(
        self, node_id: NodeId, route: Route | None, model_id: str
    ) -> None:
        """See `Nodes`."""
        node = self.cluster.nodes[node_id]
        if not await self.cluster.wire.carry(self.own_id, node_id) or not node.is_up:
            raise NodeUnreachableError(f"{node_id} cannot be told")
        node.routes.hear(self.own_id, route, model_id)

    def subscribe(self) -> trio.MemoryReceiveChannel[NodeChanged]:
        """See `Nodes`."""
        send, receive = trio.open_memory_channel[NodeChanged](1_000)
        self._subscribers.append(send)
        return receive

    def tell(self, node_id: NodeId, *, is_available: bool) -> None:
        """Tell the subscribers about a node, as far as they still read."""
        self.available[node_id] = is_available
        for channel in list(self._subscribers):
            try:
                channel.send_nowait(NodeChanged(node_id, is_available))
            except trio.BrokenResourceError:
                self._subscribers.remove(channel)


@attrs.define(eq=False)
class AsyncCluster:
    """Nodes a, b, c and the wire between them."""

    nursery: trio.Nursery
    nodes: dict[NodeId, AsyncNode] = attrs.Factory(dict)
    wire: Wire = attrs.Factory(Wire)
    jitter: Callable[[], float] = attrs.field(factory=lambda: Random(1).random)
    look_s: float = 1.0
    stage_count: int = 3
    fewest_stages: int = 2
    stage_side: type[AsyncStageSide] = AsyncStageSide
    sent: list[tuple[NodeId, NodeId, Request]] = attrs.Factory(list)
    keys: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1))

    def add(self, name: str) -> AsyncNode:
        """Add a node that does not run yet."""
        node_id = NodeId(name)
        stages = self.stage_side(
            node_id=node_id, clock=virtual_instant, chain_health=self._health
        )
        node = AsyncNode(cluster=self, own_id=node_id, stages=stages)
        stages.on_change = lambda: self._node_said(node)
        self.nodes[node_id] = node
        return node

    async def start(self, name: str) -> None:
        """Start a node's daemon."""
        await self.nursery.start(self.nodes[NodeId(name)].run)

    def cut(self, one: str, other: str, *, is_one_way: bool = False) -> None:
        """Cut the wire from one node to the other, and back unless one way."""
        self.wire.cuts.add((NodeId(one), NodeId(other)))
        if not is_one_way:
            self.wire.cuts.add((NodeId(other), NodeId(one)))
        self.look()

    def isolate(self, name: str) -> None:
        """Cut a node off from everybody."""
        for other in self.nodes:
            if other != name:
                self.cut(name, other)

    def cut_control(self, name: str) -> None:
        """Cut a node off from everybody, but let its stages work on."""
        for other in self.nodes:
            if other != name:
                self.wire.control_cuts.add((NodeId(name), other))
                self.wire.control_cuts.add((other, NodeId(name)))
        self.look()

    def heal(self) -> None:
        """Mend every wire."""
        self.wire.cuts.clear()
        self.wire.control_cuts.clear()
        self.wire.loss = 0.0
        self.look()

    def look(self) -> None:
        """Let every node notice, a little later, whom it reaches now."""
        self.nursery.start_soon(self._notice)

    def is_whole(self, node_ids: Sequence[NodeId], run_id: RunId) -> bool:
        """Whether every stage of a chain is ready and reaches the next one."""
        if not all(self.nodes[node_id].stages.serves(run_id) for node_id in node_ids):
            return False
        return not any(
            self.wire.is_cut(one, other) or self.wire.is_cut(other, one)
            for one, other in itertools.pairwise(node_ids)
        )

    async def _notice(self) -> None:
        await trio.sleep(NOTICED_S)
        for node, other in itertools.permutations(self.nodes.values(), 2):
            if not node.is_up:
                continue
            # A control connection needs both ways.
            is_reached = other.is_up and not (
                self.wire.is_control_cut(node.own_id, other.own_id)
                or self.wire.is_control_cut(other.own_id, node.own_id)
            )
            if node.available.get(other.own_id) is not is_reached:
                node.tell(other.own_id, is_available=is_reached)

    def _node_said(self, speaker: AsyncNode) -> None:
        for node in self.nodes.values():
            if node is speaker or node.available.get(speaker.own_id, False):
                node.tell(speaker.own_id, is_available=True)

    def _health(self, load: LoadStage) -> str:
        """What the canary of a first stage finds, over all stages it knows of."""
        run_id = load.stage.run_id
        settings = next(
            process.settings
            for node in self.nodes.values()
            for process in node.stages.processes
            if process.load == load
        )
        assert settings is not None
        chain = [stage.node_id for stage in settings.stages]
        return "ok" if self.is_whole(chain, run_id) else "degraded: a stage is lost"


@asynccontextmanager
async def running_cluster(
    *names: str, look_s: float = 1.0
) -> AsyncIterator[AsyncCluster]:
    """Nodes that run and know each other."""
    async with trio.open_nursery() as nursery:
        cluster = AsyncCluster(nursery, look_s=look_s)
        for name in names:
            cluster.add(name)
        for name in names:
            await cluster.start(name)
        await trio.sleep(1)
        yield cluster
        nursery.cancel_scope.cancel()
