"""Nodes in one process that meet over real TLS on loopback."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.control_server import serve_control
from skippyd.coordination.control_timers import ControlTimers
from skippyd.coordination.identity import Identity, load_or_create
from skippyd.coordination.joining import Joining
from skippyd.coordination.latency_echo import serve_latency_echo
from skippyd.coordination.nodes import NodeRegistry
from skippyd.coordination.peers import Peer, PeerBook, checked_peer
from skippyd.coordination.ports import FEATURES, GENERATION, NodeReport
from skippyd.core.coordinator.messages import (
    ClaimAnswer,
    ClaimCoordinator,
    Origin,
    ProbeAnswer,
    ProbeClaim,
    Reply,
    Request,
    StageStopped,
    StopStage,
)
from skippyd.core.coordinator.verdict import Accepted


if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from skippyd.coordination.ports import Route, StageRunSettings
    from skippyd.ids import NodeId

QUICK = ControlTimers(
    opening_s=1.0,
    status_every_s=0.1,
    missed_for_silence=5,
    status_gap_s=0.01,
    first_retry_s=0.05,
    longest_retry_s=0.2,
)


def report_of(node_id: NodeId, name: str) -> NodeReport:
    """What a node without stages says."""
    return NodeReport(
        node_id=node_id,
        name=name,
        version="0.1.0",
        generation=GENERATION,
        features=FEATURES,
        instance_id=f"store of {name}",
        memory_bytes=8 << 30,
        max_memory_bytes=None,
        headroom_bytes=1 << 30,
        stage_host="127.0.0.1",
        models=(),
        stages=(),
    )


@attrs.define(eq=False)
class ScriptedStageSide:
    """A stage side that accepts every claim and remembers what it was asked."""

    said: NodeReport
    asked: list[tuple[Request, Origin, StageRunSettings | None]] = attrs.Factory(list)
    held: trio.Event | None = None
    _changed: trio.Event = attrs.Factory(trio.Event)

    async def request(
        self,
        request: Request,
        *,
        origin: Origin,
        settings: StageRunSettings | None = None,
    ) -> Reply:
        self.asked.append((request, origin, settings))
        if self.held is not None:
            await self.held.wait()
        await trio.lowlevel.checkpoint()
        store = self.said.instance_id
        match request:
            case ClaimCoordinator(claim=claim):
                return ClaimAnswer(verdict=Accepted(claim), instance_id=store)
            case ProbeClaim(claim=claim):
                return ProbeAnswer(
                    verdict=Accepted(claim), fenced_runs=(), instance_id=store
                )
            case StopStage(stage=stage):
                return StageStopped(stage)
            case _:
                raise AssertionError(f"nobody scripted {request}")

    def report(self) -> NodeReport:
        return self.said

    def changed(self) -> trio.Event:
        return self._changed

    def say(self, report: NodeReport) -> None:
        """Change the report."""
        self.said = report
        changed, self._changed = self._changed, trio.Event()
        changed.set()


@attrs.define(eq=False)
class HeardRoutes:
    """Routes as they were announced."""

    heard: list[tuple[NodeId, Route | None, str]] = attrs.Factory(list)

    def hear(self, sender: NodeId, route: Route | None, model_id: str) -> None:
        self.heard.append((sender, route, model_id))


@attrs.define(eq=False, kw_only=True)
class ControlNode:
    """One node: identity, book, scripted stages, and where it listens."""

    name: str
    identity: Identity
    peers: PeerBook
    stages: ScriptedStageSide
    routes: HeardRoutes
    port: int = 0
    registry: NodeRegistry
    joining: Joining
    timers: ControlTimers
    _life: trio.CancelScope | None = None

    @property
    def node_id(self) -> NodeId:
        return self.identity.node_id

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def as_peer(self, *, port: int | None = None) -> Peer:
        """What another node stores about it."""
        return checked_peer(
            address=f"127.0.0.1:{port or self.port}",
            certificate_pem=self.identity.certificate_pem,
            name=self.name,
        )

    async def run(
        self,
        listener: trio.SocketListener,
        *,
        with_registry: bool = True,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Live until `die`."""
        with trio.CancelScope() as self._life:
            async with trio.open_nursery() as nursery:
                await nursery.start(
                    partial(
                        serve_control,
                        listener,
                        identity=self.identity,
                        peers=self.peers,
                        stage_side=self.stages,
                        joining=self.joining,
                        methods=self.registry.methods(),
                        report=self.registry.own_report,
                        on_peer=self.registry.knock,
                        timers=self.timers,
                    )
                )
                if with_registry:
                    await nursery.start(self.registry.run)
                task_status.started()

    def die(self) -> None:
        """End the node; its sockets close."""
        assert self._life is not None
        self._life.cancel()


def make_node(
    folder: Path, name: str, *, timers: ControlTimers = QUICK, latency_port: int = 0
) -> ControlNode:
    """Make a node that is not running yet."""
    state = folder / name
    state.mkdir(exist_ok=True)
    identity, peers = load_or_create(state), PeerBook(state)
    stages = ScriptedStageSide(report_of(identity.node_id, name))
    routes = HeardRoutes()

    def wall_ms() -> int:
        return 1_700_000_000_000

    return ControlNode(
        name=name,
        identity=identity,
        peers=peers,
        stages=stages,
        routes=routes,
        timers=timers,
        registry=NodeRegistry(
            identity,
            peers,
            stages,
            wall_ms=wall_ms,
            routes=routes,
            latency_port=latency_port,
            timers=timers,
        ),
        joining=Joining(
            identity=identity, peers=peers, name=name, address="", wall_ms=wall_ms
        ),
    )


async def listen(node: ControlNode, port: int = 0) -> trio.SocketListener:
    """Bind a node's control address and tell it."""
    (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
    node.port = listener.socket.getsockname()[1]
    node.joining.address = node.address
    return listener


@asynccontextmanager
async def running_nodes(
    folder: Path,
    *names: str,
    timers: ControlTimers = QUICK,
    is_acquainted: bool = True,
) -> AsyncIterator[list[ControlNode]]:
    """Run nodes, each with a latency responder, that know each other or do not."""
    async with trio.open_nursery() as nursery:
        nodes: list[ControlNode] = []
        listeners: list[trio.SocketListener] = []
        for name in names:
            port: int = await nursery.start(serve_latency_echo, "127.0.0.1")
            nodes.append(make_node(folder, name, timers=timers, latency_port=port))
            listeners.append(await listen(nodes[-1]))
        if is_acquainted:
            acquaint(*nodes)
        for node, listener in zip(nodes, listeners, strict=True):
            await nursery.start(node.run, listener)
        yield nodes
        nursery.cancel_scope.cancel()


def acquaint(*nodes: ControlNode) -> None:
    """Let every node store every other."""
    for node in nodes:
        for other in nodes:
            if other is not node:
                node.peers.add(other.as_peer())


async def until_available(
    node: ControlNode, other: ControlNode, *, is_available: bool = True
) -> None:
    """Wait until one node sees another as available, or as lost."""
    with node.registry.subscribe() as changes:
        while (other.node_id in node.registry.reports()) != is_available:
            await changes.receive()
