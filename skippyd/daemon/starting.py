"""The order in which the parts of a node start, each after those it needs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from skippyd.coordination.control_server import serve_control
from skippyd.coordination.control_timers import ControlTimers
from skippyd.coordination.failover import ChainWatch
from skippyd.coordination.failover_health import is_chain_serving
from skippyd.coordination.identity import load_or_create
from skippyd.coordination.inventory import Inventory
from skippyd.coordination.joining import Joining
from skippyd.coordination.latency_echo import serve_latency_echo
from skippyd.coordination.model_digests import ModelDigests
from skippyd.coordination.node_budget import node_budget
from skippyd.coordination.nodes import NodeRegistry
from skippyd.coordination.peers import PeerBook
from skippyd.coordination.planning import Planner
from skippyd.coordination.rollout_events import EventLog
from skippyd.coordination.rollout_parts import RolloutParts
from skippyd.coordination.rollout_wishes import CoordinatorFile
from skippyd.coordination.rollouts import Rollouts
from skippyd.coordination.route import RouteTable, loss_of_peers
from skippyd.coordination.route_announcing import RouteAnnouncer
from skippyd.coordination.stage_documents import ChainTrust
from skippyd.coordination.stage_parts import StageParts
from skippyd.coordination.stage_side import NodeStages
from skippyd.core.coordinator.instant import MS_PER_S
from skippyd.core.telemetry.ring import TelemetryRing
from skippyd.daemon.clock import read_instant
from skippyd.daemon.logs import stage_line
from skippyd.daemon.node import (
    Node,
    advertised_address,
    configured_peers,
    node_name,
    stage_ports,
)
from skippyd.daemon.supervisor import Supervisor
from skippyd.runtime.build import build_facts


if TYPE_CHECKING:
    from collections.abc import Callable

    import trio

    from skippyd.config.daemon import DaemonConfig
    from skippyd.coordination.fence_store import FenceStore
    from skippyd.coordination.identity import Identity
    from skippyd.coordination.ports import Nodes
    from skippyd.daemon.listeners import Listeners
    from skippyd.daemon.logs import LogRing
    from skippyd.daemon.safe_mode import SafeModeSwitch
    from skippyd.daemon.state_directory import StateDirectory
    from skippyd.ids import NodeId, RunId
    from skippyd.stage.span_outbox import SpanBatch


@attrs.define(eq=False, kw_only=True)
class NodeStart:
    """What the parts up to the coordinator are made of.

    Args:
        config: What the node is to be.
        state: Its locked state directory.
        store: The durable memory of its fence, open.
        nursery: Where the parts run.
        listeners: Its sockets.
        safe_mode: What is in force.
        log_ring: The newest lines of its log.
        reach: Told the name of each fail point.
        telemetry: The newest spans.
    """

    config: DaemonConfig
    state: StateDirectory
    store: FenceStore
    nursery: trio.Nursery
    listeners: Listeners
    safe_mode: SafeModeSwitch
    log_ring: LogRing
    reach: Callable[[str], None]
    telemetry: TelemetryRing = attrs.Factory(TelemetryRing)

    async def node(self) -> Node:
        """Start the parts up to the coordinator, each after those it needs."""
        config, nursery = self.config, self.nursery
        identity = load_or_create(self.state.path)
        peers = PeerBook(self.state.path, configured_peers(config.peers))
        inventory, stages = await self._stages(identity, peers)
        latency_port: int = await nursery.start(serve_latency_echo, config.stages.host)
        routes = RouteTable(identity.node_id)
        timers = ControlTimers(status_every_s=config.timers.status_every_ms / MS_PER_S)
        registry = NodeRegistry(
            identity,
            peers,
            stages,
            wall_ms=read_wall_ms,
            routes=routes,
            latency_port=latency_port,
            timers=timers,
        )
        routes.lost_reason_of = loss_of_peers(registry)
        address = advertised_address(config, self.listeners.control_port)
        node = Node(
            config=config,
            name=node_name(config),
            address=address,
            state=self.state,
            identity=identity,
            peers=peers,
            store=self.store,
            inventory=inventory,
            stages=stages,
            registry=registry,
            joining=Joining(
                identity=identity,
                peers=peers,
                name=node_name(config),
                address=address,
                wall_ms=read_wall_ms,
            ),
            routes=routes,
            rollouts=self._rollouts(registry, routes, inventory, stages),
            safe_mode=self.safe_mode,
            log_ring=self.log_ring,
            telemetry=self.telemetry,
        )
        await self._meet_others(node, timers)
        return node

    async def _stages(
        self, identity: Identity, peers: PeerBook
    ) -> tuple[Inventory, NodeStages]:
        config = self.config

        def take_spans(batch: SpanBatch) -> None:
            self.telemetry.count_lost(batch.dropped)
            for span in batch.spans:
                self.telemetry.record(span)

        supervisor = Supervisor(
            host=config.stages.host, ports=stage_ports(config), log_line=stage_line
        )
        inventory = Inventory(
            [Path(path) for path in config.models.paths],
            ModelDigests(self.state.model_digests),
        )
        stages = NodeStages(
            node_id=identity.node_id,
            name=node_name(config),
            store=self.store,
            supervisor=supervisor,
            inventory=inventory,
            parts=StageParts(inventory),
            clock=read_instant,
            budget=functools.partial(
                node_budget,
                max_memory_bytes=config.stages.max_memory,
                headroom_bytes=config.stages.headroom,
            ),
            reach=self.reach,
            safe_mode=self.safe_mode.is_effective,
            on_spans=take_spans,
            trust=(
                None if config.stages.allow_plaintext else _trust_of(identity, peers)
            ),
        )
        await self.nursery.start(supervisor.run)
        await self.nursery.start(inventory.run)
        await self.nursery.start(stages.run)
        return inventory, stages

    def _rollouts(
        self,
        nodes: Nodes,
        routes: RouteTable,
        inventory: Inventory,
        stages: NodeStages,
    ) -> Rollouts:
        parts = RolloutParts(
            nodes=nodes,
            plans=Planner(nodes=nodes, files=inventory, build=build_facts),
            memory=CoordinatorFile.open(self.state.coordinator),
            routes=routes,
            announcer=RouteAnnouncer(nodes),
            guard=ChainWatch(
                nodes=nodes,
                routes=routes,
                is_serving=is_chain_serving,
                clock=read_instant,
            ),
            log=EventLog(),
            clock=read_instant,
            active_requests=functools.partial(active_requests, routes, stages),
            withdraw_grace_ms=self.config.timers.withdraw_grace_ms,
        )
        return Rollouts(parts)

    async def _meet_others(self, node: Node, timers: ControlTimers) -> None:
        registry = node.registry
        await self.nursery.start(registry.run)
        serve = functools.partial(
            serve_control,
            self.listeners.control,
            identity=node.identity,
            peers=node.peers,
            stage_side=node.stages,
            joining=node.joining,
            methods=registry.methods(),
            report=registry.own_report,
            on_peer=registry.knock,
            timers=timers,
        )
        await self.nursery.start(serve)
        await self.nursery.start(node.rollouts.run)


def _trust_of(identity: Identity, peers: PeerBook) -> ChainTrust:
    """Stages know each other by the certificates that their nodes have stored."""

    def certificate_of(node_id: NodeId) -> str | None:
        if node_id == identity.node_id:
            return identity.certificate_pem
        peer = peers.get(node_id)
        return None if peer is None else peer.certificate_pem

    return ChainTrust(own=identity.own_certificate, certificate_of=certificate_of)


def active_requests(routes: RouteTable, stages: NodeStages, run_id: RunId) -> int:
    """Requests through our front door, or those that clients brought to stage 0."""
    busy = sum(
        run.counters.get("busy_lanes", 0)
        for run in stages.stage_runs()
        if run.load.stage.run_id == run_id and run.load.stage_index == 0
    )
    return max(routes.use_count(run_id), busy)


def read_wall_ms() -> int:
    """Read the wall clock."""
    return read_instant().unix_ms
