"""All nodes this one knows, itself included: links to peers, requests, measurements.

`NodeRegistry` is the `Nodes` of a rollout.  It keeps one link per trusted peer, follows
the peer book without a restart, and answers the two commands of the control server that
are about other nodes: `measure` and `route`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from skippyd.config.complaints import show
from skippyd.config.endpoints import Endpoint
from skippyd.coordination.control_client import LinkOwner, PeerLink
from skippyd.coordination.control_json import (
    command_of,
    reply_from_json,
    request_to_json,
    route_from_json,
    route_to_json,
)
from skippyd.coordination.control_timers import ControlTimers
from skippyd.coordination.latency_echo import MEASURE_S, measure_latencies_ms
from skippyd.coordination.ports import NodeChanged, NodeUnreachableError, PeerInfo
from skippyd.core.coordinator.messages import Origin
from skippyd.errors import ConfigError
from skippyd.net.jsonrpc_messages import RpcCode, RpcError


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from skippyd.coordination.identity import Identity
    from skippyd.coordination.peers import Peer, PeerBook
    from skippyd.coordination.ports import (
        NodeReport,
        Route,
        StageRunSettings,
        StageSide,
    )
    from skippyd.core.coordinator.messages import Reply, Request
    from skippyd.ids import NodeId

logger = logging.getLogger(__name__)

UNREAD_CHANGES = 1024
"""A subscriber that far behind has lost its way: what is newer is dropped and logged."""

MOST_TARGETS = 64
MEASURE_TIMEOUT_S = MEASURE_S + 2.0
ANNOUNCE_TIMEOUT_S = 5.0


class RouteListener(Protocol):
    """Who is told where models are served."""

    def hear(self, sender: NodeId, route: Route | None, model_id: str) -> None:
        """Take an announcement; the sender is the one that TLS has seen."""
        ...


@attrs.define(eq=False)
class _Subscription:
    """One reader of changes; what it has not read yet is not told twice."""

    _send: trio.MemorySendChannel[NodeChanged]
    _told: int = attrs.field(default=0, init=False)
    _last: dict[NodeId, tuple[int, bool]] = attrs.field(factory=dict, init=False)

    def tell(self, change: NodeChanged) -> bool:
        """Queue a change; return whether anybody still reads."""
        statistics = self._send.statistics()
        if not statistics.open_receive_channels:
            return False
        number, was_available = self._last.get(change.node_id, (-1, False))
        is_unread = number >= self._told - statistics.current_buffer_used
        if number >= 0 and is_unread and was_available == change.is_available:
            return True
        try:
            self._send.send_nowait(change)
        except trio.WouldBlock:
            logger.warning("event=node_changes_not_read node=%s", change.node_id)
            return True
        self._last[change.node_id] = (self._told, change.is_available)
        self._told += 1
        return True


class NodeRegistry:
    """This node among its peers; `run` keeps the links."""

    def __init__(
        self,
        identity: Identity,
        peers: PeerBook,
        stage_side: StageSide,
        *,
        wall_ms: Callable[[], int],
        routes: RouteListener | None = None,
        latency_port: int = 0,
        timers: ControlTimers | None = None,
    ) -> None:
        """Set up; nothing is dialled before `run`.

        Args:
            identity: This node.
            peers: Whom it trusts.
            stage_side: Its stages and fences.
            wall_ms: Wall clock in unix milliseconds.
            routes: Told what peers announce, and what is announced to this node.
            latency_port: Where its responder for measurements listens.
            timers: Bounds and rhythms.
        """
        self._identity = identity
        self._peers = peers
        self._stage_side = stage_side
        self._routes = routes
        self._latency_port = latency_port
        self._links: dict[NodeId, tuple[PeerLink, trio.CancelScope]] = {}
        self._subscriptions: list[_Subscription] = []
        self._owner = LinkOwner(
            identity=identity,
            own_report=self.own_report,
            wall_ms=wall_ms,
            changed=self._changed,
            timers=timers or ControlTimers(),
        )

    @property
    def own_id(self) -> NodeId:
        """This node."""
        return self._identity.node_id

    def own_report(self) -> NodeReport:
        """Return this node's report, with the port of its latency responder."""
        report = self._stage_side.report()
        if not self._latency_port:
            return report
        return attrs.evolve(report, latency_port=self._latency_port)

    def peers(self) -> tuple[PeerInfo, ...]:
        """Return every other known node, in the order of their ids."""
        return tuple(self._links[node_id][0].info() for node_id in sorted(self._links))

    def reports(self) -> Mapping[NodeId, NodeReport]:
        """Return the reports of this node and of every available one."""
        found = {self.own_id: self.own_report()}
        for node_id, (link, _) in self._links.items():
            if (report := link.available_report) is not None:
                found[node_id] = report
        return found

    def subscribe(self) -> trio.MemoryReceiveChannel[NodeChanged]:
        """Return changes from now on; close it to end the subscription."""
        send, receive = trio.open_memory_channel[NodeChanged](UNREAD_CHANGES)
        self._subscriptions.append(_Subscription(send))
        return receive

    def knock(self, node_id: NodeId) -> None:
        """Dial a peer now: it has just come in, so it is there."""
        if node_id in self._links:
            self._links[node_id][0].knock()

    def methods(
        self,
    ) -> Mapping[str, Callable[[NodeId, object], Awaitable[object]]]:
        """Return the commands that the control server hands to this registry."""
        return {"measure": self._answer_measure, "route": self._answer_route}

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Keep a link to every trusted peer until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow_own_changes)
                self._reconcile(nursery)
                task_status.started()
                while True:
                    changed = self._peers.changed()
                    self._reconcile(nursery)
                    await changed.wait()
        finally:
            self._links.clear()

    async def request(
        self,
        node_id: NodeId,
        request: Request,
        settings: StageRunSettings | None = None,
        *,
        timeout_s: float,
    ) -> Reply:
        """Ask a node, or this one.

        Raises:
            NodeUnreachableError: It cannot be asked or did not answer in time.
        """
        command = command_of(request)
        if node_id == self.own_id:
            with trio.move_on_after(timeout_s):
                return await self._stage_side.request(
                    request, origin=Origin.NETWORK, settings=settings
                )
            raise NodeUnreachableError(
                f"this node did not answer {command} within {timeout_s:g} s"
            )
        document = request_to_json(request, settings)
        answer = await self._link(node_id).ask(command, document, timeout_s=timeout_s)
        try:
            return reply_from_json(answer)
        except ConfigError as error:
            raise NodeUnreachableError(
                f"node {node_id} answered {command} with what is no reply: {error}"
            ) from error

    async def measure_latency_ms(
        self, node_id: NodeId, targets: Sequence[NodeId]
    ) -> Mapping[NodeId, float]:
        """Let a node measure the way to others, one way and in milliseconds.

        Targets that it does not know or reach are left out.

        Raises:
            NodeUnreachableError: It cannot be asked or did not answer in time.
        """
        if node_id == self.own_id:
            return await self._measure(targets)
        command: dict[str, object] = {"targets": list(targets)}
        answer = await self._link(node_id).ask(
            "measure", command, timeout_s=MEASURE_TIMEOUT_S
        )
        match answer:
            case {"latency_ms": dict(found)}:
                return {
                    target: float(found[target])
                    for target in targets
                    if isinstance(found.get(target), int | float)
                }
            case _:
                raise NodeUnreachableError(
                    f"node {node_id} answered measure with {show(answer)}"
                )

    async def announce_route(
        self, node_id: NodeId, route: Route | None, model_id: str
    ) -> None:
        """Tell a node where a model is served now, or that it is not.

        Raises:
            NodeUnreachableError: It cannot be asked or did not answer in time.
        """
        if node_id == self.own_id:
            if self._routes is not None:
                self._routes.hear(self.own_id, route, model_id)
            return
        command: dict[str, object] = {
            "model_id": model_id,
            "route": None if route is None else route_to_json(route),
        }
        await self._link(node_id).ask("route", command, timeout_s=ANNOUNCE_TIMEOUT_S)

    def _link(self, node_id: NodeId) -> PeerLink:
        if node_id not in self._links:
            raise NodeUnreachableError(
                f"node {node_id} is not a peer of this node; join it first"
            )
        return self._links[node_id][0]

    def _reconcile(self, nursery: trio.Nursery) -> None:
        wanted = {peer.node_id: peer for peer in self._peers.all()}
        wanted.pop(self.own_id, None)
        for node_id, (link, scope) in list(self._links.items()):
            if wanted.get(node_id) != link.peer:
                del self._links[node_id]
                scope.cancel()
        for node_id, peer in wanted.items():
            if node_id not in self._links:
                self._begin(peer, nursery)

    def _begin(self, peer: Peer, nursery: trio.Nursery) -> None:
        link, scope = PeerLink(peer, self._owner), trio.CancelScope()
        self._links[peer.node_id] = (link, scope)

        async def keep() -> None:
            with scope:
                await link.run()

        nursery.start_soon(keep)

    async def _follow_own_changes(self) -> None:
        while True:
            await self._stage_side.changed().wait()
            self._changed(self.own_id, is_available=True)

    def _changed(self, node_id: NodeId, is_available: bool) -> None:
        change = NodeChanged(node_id, is_available)
        self._subscriptions = [
            reader for reader in self._subscriptions if reader.tell(change)
        ]

    async def _measure(self, targets: Sequence[NodeId]) -> Mapping[NodeId, float]:
        reports = self.reports()
        endpoints = {
            target: Endpoint(report.stage_host, report.latency_port)
            for target in targets
            if (report := reports.get(target)) is not None and report.latency_port
        }
        return await measure_latencies_ms(
            endpoints, source_host=self.own_report().stage_host
        )

    async def _answer_measure(self, _sender: NodeId, command: object) -> object:
        match command:
            case {"targets": list(targets)} if len(targets) <= MOST_TARGETS and all(
                isinstance(target, str) for target in targets
            ):
                # Addresses are the ones this node knows: nobody sends it anywhere else.
                return {"latency_ms": await self._measure(targets)}
            case _:
                message = f"measure: targets is a list of up to {MOST_TARGETS} node ids"
                raise RpcError(RpcCode.INVALID_PARAMS, message)

    async def _answer_route(self, sender: NodeId, command: object) -> object:
        match command:
            case {"model_id": str(model_id), "route": None}:
                route = None
            case {"model_id": str(model_id), "route": document}:
                route = _route(document)
            case _:
                raise RpcError(
                    RpcCode.INVALID_PARAMS, "route: model_id and route are expected"
                )
        await trio.lowlevel.checkpoint()
        if self._routes is not None:
            self._routes.hear(sender, route, model_id)
        return {}


def _route(document: object) -> Route:
    try:
        return route_from_json(document)
    except ConfigError as error:
        raise RpcError(RpcCode.INVALID_PARAMS, str(error)) from error
