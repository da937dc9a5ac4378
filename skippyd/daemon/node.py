"""One running node as a value: its parts, for the tree that runs them and for views."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.peers import checked_peer
from skippyd.daemon.clock import read_instant
from skippyd.errors import ConfigError


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from skippyd.config.daemon import DaemonConfig, PeerTable
    from skippyd.coordination.fence_store import FenceStore
    from skippyd.coordination.identity import Identity
    from skippyd.coordination.inventory import Inventory
    from skippyd.coordination.joining import Joining
    from skippyd.coordination.nodes import NodeRegistry
    from skippyd.coordination.peers import Peer, PeerBook
    from skippyd.coordination.rollouts import Rollouts
    from skippyd.coordination.route import RouteTable
    from skippyd.coordination.stage_side import NodeStages
    from skippyd.core.coordinator.instant import Instant
    from skippyd.core.telemetry.ring import TelemetryRing
    from skippyd.daemon.logs import LogRing
    from skippyd.daemon.safe_mode import SafeModeSwitch
    from skippyd.daemon.state_directory import StateDirectory


@attrs.define(eq=False, kw_only=True)
class Node:
    """The parts of a running node.

    Args:
        config: What it was told; replaced when it is read again.
        name: What people call it.
        address: HOST:PORT that others reach its control server at.
        state: Its locked state directory.
        identity: Who it is.
        peers: Whom it trusts.
        store: The durable memory of its fence.
        inventory: Its model files.
        stages: Its stage side.
        registry: All nodes it knows.
        joining: Its invitations.
        routes: Where models are served.
        rollouts: What it coordinates.
        safe_mode: Requested and in force.
        log_ring: The newest lines of its log.
        telemetry: The newest spans.
        started: When, on both clocks.
        stopping: Set when the daemon is to end.
        is_restarting: Whether the service manager is to start it again.
    """

    config: DaemonConfig
    name: str
    address: str
    state: StateDirectory
    identity: Identity
    peers: PeerBook
    store: FenceStore
    inventory: Inventory
    stages: NodeStages
    registry: NodeRegistry
    joining: Joining
    routes: RouteTable
    rollouts: Rollouts
    safe_mode: SafeModeSwitch
    log_ring: LogRing
    telemetry: TelemetryRing
    started: Instant = attrs.Factory(read_instant)
    stopping: trio.Event = attrs.Factory(trio.Event)
    is_restarting: bool = False


def node_name(config: DaemonConfig) -> str:
    """What people call this node."""
    return config.node.name or socket.gethostname()


def configured_peers(tables: Iterable[PeerTable]) -> tuple[Peer, ...]:
    """Read the certificates of the peers of the configuration file.

    Raises:
        ConfigError: A certificate cannot be read or is another node's.
    """
    return tuple(_peer(table) for table in tables)


def advertised_address(config: DaemonConfig, port: int) -> str:
    """Where others reach this node's control server."""
    advertised = config.control.advertise
    if advertised is not None:
        return str(advertised)
    return str(attrs.evolve(config.control.bind, port=port))


def stage_ports(config: DaemonConfig) -> Sequence[int]:
    """Ports that stages may listen on; 0 is any free one."""
    stages = config.stages
    return range(stages.first_port, stages.last_port + 1) if stages.last_port else (0,)


def _peer(table: PeerTable) -> Peer:
    try:
        certificate = Path(table.certificate).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"[[peers]] {table.id}: certificate {table.certificate} cannot be read: "
            f"{error}"
        ) from error
    return checked_peer(
        address=str(table.address),
        certificate_pem=certificate,
        name=table.name,
        node_id=table.id,
    )
