"""The control server of a node: who may come in, and what each request is answered with.

Theory of operation, for one connection: TLS (a client shows a stored certificate, or
none), the opening of the WebSocket, the hello; all of it within one deadline and a bound
on how many may be at it.  Then requests are answered and this node's status is pushed:
at once when it changed, and every two seconds.  A client without a certificate reaches
the path of `join` only.  When a peer is no longer trusted its connections end.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from typing import TYPE_CHECKING, Protocol

import attrs
import trio

from skippyd.config.complaints import shorten
from skippyd.coordination.control_frames import (
    check_request,
    hello_of,
    read_frame,
    read_hello,
)
from skippyd.coordination.control_json import (
    REQUESTS,
    inventory_to_json,
    reply_to_json,
    report_to_json,
    request_from_json,
)
from skippyd.coordination.control_timers import (
    BYTES_ALPN,
    CONTROL_ALPN,
    CONTROL_PATH,
    HELLO,
    JOIN,
    JOIN_PATH,
    STATUS_UPDATE,
    ControlTimers,
    watch_for_death,
)
from skippyd.core.coordinator.messages import Origin
from skippyd.core.coordinator.reasons import LoadRefusalReason, refusal_text
from skippyd.errors import ConfigError, LocalProtocolError
from skippyd.ids import NodeId, Term
from skippyd.net.jsonrpc import RpcConnection
from skippyd.net.jsonrpc_messages import RpcCode, RpcError
from skippyd.net.tls import (
    TlsRefusedError,
    server_context,
    shake_hands,
    spoken_protocol,
)
from skippyd.net.websocket import (
    POLICY_VIOLATION,
    ChannelClosedError,
    WebSocketLimits,
    accept_websocket,
)


if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

    from skippyd.coordination.identity import Identity
    from skippyd.coordination.peers import PeerBook
    from skippyd.coordination.ports import NodeReport, StageSide
    from skippyd.net.websocket import WebSocketChannel

logger = logging.getLogger(__name__)

MOST_OPENING = 64
MOST_OPENING_PER_ADDRESS = 16
MOST_PER_PEER = 8


class JoinDesk(Protocol):
    """Who answers `join`; `coordination.joining.Joining` does."""

    def admit(self, params: object, *, host: str) -> dict[str, object]:
        """Take a node in, or refuse with `RpcError`."""
        ...


def ignore_peer(_node_id: NodeId) -> None:
    """Do nothing when a peer has come in."""


@attrs.define(eq=False, kw_only=True)
class ControlServer:
    """What all connections of one server share.

    Args:
        identity: This node.
        peers: Whom it trusts.
        stage_side: Its stages and fences.
        joining: Who answers `join`; None: nobody can.
        methods: Further commands, by name.
        report: What is pushed; the stage side's report when left out.
        on_peer: Told when a peer has said hello.
        timers: Bounds.
    """

    identity: Identity
    peers: PeerBook
    stage_side: StageSide
    joining: JoinDesk | None = None
    methods: Mapping[str, Callable[[NodeId, object], Awaitable[object]]] = (
        attrs.Factory(dict)
    )
    report: Callable[[], NodeReport]
    on_peer: Callable[[NodeId], None] = ignore_peer
    timers: ControlTimers = attrs.Factory(ControlTimers)
    _opening: Counter[str] = attrs.field(factory=Counter, init=False)
    _per_peer: Counter[NodeId] = attrs.field(factory=Counter, init=False)
    _context: ssl.SSLContext | None = attrs.field(default=None, init=False)
    _context_until: trio.Event | None = attrs.field(default=None, init=False)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection from its first byte to its end; never raises."""
        host = reason = ""
        try:
            # Fails when the client has gone again already.
            host = str(stream.socket.getpeername()[0])
            reason = await self._admitted(stream, host)
        except (TlsRefusedError, ChannelClosedError, ConfigError, OSError) as error:
            reason = str(error)
        # The guard: a fault of ours in one connection ends that connection only.
        except Exception:
            logger.exception("event=control_connection_failed host=%s", host)
        finally:
            await trio.aclose_forcefully(stream)
        if reason:
            logger.info(
                "event=control_connection_ended host=%s reason=%r", host, reason
            )

    async def _admitted(self, stream: trio.SocketStream, host: str) -> str:
        is_full = self._opening.total() >= MOST_OPENING
        if is_full or self._opening[host] >= MOST_OPENING_PER_ADDRESS:
            return "too many connections are being opened"
        self._opening[host] += 1
        gate = _Gate(self, host)
        try:
            watch_for_death(stream, self.timers)
            with trio.move_on_after(self.timers.opening_s) as gate.scope:
                return await self._connection(stream, gate)
            return f"said no hello within {self.timers.opening_s:g} s"
        finally:
            gate.pass_()

    async def _connection(self, stream: trio.SocketStream, gate: _Gate) -> str:
        tls = trio.SSLStream(stream, self._tls_context(), server_side=True)
        key = await shake_hands(tls)
        if spoken_protocol(tls) != CONTROL_ALPN:
            return f"speaks {spoken_protocol(tls)}, not {CONTROL_ALPN}"
        limits = WebSocketLimits(handshake_s=self.timers.opening_s)
        paths = {CONTROL_PATH, JOIN_PATH}
        async with accept_websocket(tls, paths=paths, limits=limits) as channel:
            if channel.path == JOIN_PATH:
                return await self._join(channel, gate.host)
            if key is None or self.peers.get(NodeId(key)) is None:
                reason = "show the certificate that is stored here; join first"
                await channel.close(POLICY_VIOLATION, reason)
                return "showed no certificate"
            reason = await self._talk(channel, NodeId(key), gate)
            return f"node {key}: {reason}"

    def _tls_context(self) -> ssl.SSLContext:
        changed = self.peers.changed()
        if self._context is None or changed is not self._context_until:
            self._context = server_context(
                self.identity.own_certificate,
                trusted_pems=[peer.certificate_pem for peer in self.peers.all()],
                alpn=[CONTROL_ALPN, BYTES_ALPN],
                may_be_anonymous=True,
            )
            self._context_until = changed
        return self._context

    async def _join(self, channel: WebSocketChannel, host: str) -> str:
        async def answer(method: str, params: object) -> object:
            if method != JOIN or self.joining is None:
                raise RpcError(RpcCode.NOT_ALLOWED, "this path answers join only")
            return self.joining.admit(params, host=host)

        # Within the deadline of the opening: a joiner has one thing to say.
        return await RpcConnection(channel, handler=answer).run()

    async def _talk(
        self, channel: WebSocketChannel, peer_id: NodeId, gate: _Gate
    ) -> str:
        if self._per_peer[peer_id] >= MOST_PER_PEER:
            reason = f"{MOST_PER_PEER} connections of node {peer_id} are open already"
            await channel.close(POLICY_VIOLATION, reason)
            return reason
        session = _Session(server=self, peer_id=peer_id, gate=gate)
        rpc = RpcConnection(channel, handler=session.answer)
        reason = ""
        self._per_peer[peer_id] += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.push_status, rpc)
                nursery.start_soon(session.end_with_trust, channel)
                reason = await rpc.run()
                nursery.cancel_scope.cancel()
        finally:
            self._per_peer[peer_id] -= 1
        return reason


@attrs.define(eq=False)
class _Gate:
    """The place of one connection among those that are being opened."""

    _server: ControlServer
    host: str
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _is_passed: bool = attrs.field(default=False, init=False)

    def pass_(self) -> None:
        """Give the place to another connection; no deadline from now on."""
        if self._is_passed:
            return
        self._is_passed = True
        self.scope.deadline = math.inf
        opening = self._server._opening  # noqa: SLF001 - one room, two classes
        opening[self.host] -= 1
        if not opening[self.host]:
            del opening[self.host]


@attrs.define(eq=False, kw_only=True)
class _Session:
    """What one trusted peer says and is told."""

    server: ControlServer
    peer_id: NodeId
    gate: _Gate
    _greeted: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def answer(self, method: str, params: object) -> object:
        """Answer one request; hello comes first."""
        if method == HELLO:
            read_hello(params, peer_id=self.peer_id)
            self.gate.pass_()
            self._greeted.set()
            self.server.on_peer(self.peer_id)
            return hello_of(self.server.report())
        if not self._greeted.is_set():
            raise RpcError(RpcCode.NOT_READY, "say hello first")
        frame = read_frame(params, peer_id=self.peer_id)
        with trio.move_on_after(frame.deadline_ms / 1000):
            return await self._perform(method, frame.command)
        raise RpcError(
            RpcCode.DEADLINE, f"{method} was not done within {frame.deadline_ms} ms"
        )

    async def push_status(self, rpc: RpcConnection) -> None:
        """Tell how this node is: at once when it changed, and regularly."""
        await self._greeted.wait()
        told: NodeReport | None = None
        timers = self.server.timers
        while True:
            changed = self.server.stage_side.changed()
            report = self.server.report()
            is_known = told is not None and attrs.evolve(told, sequence=0) == (
                attrs.evolve(report, sequence=0)
            )
            told = report
            try:
                await _tell(rpc, None if is_known else report)
            except ChannelClosedError:
                # The reader ends the session with the reason.
                return
            with trio.move_on_after(timers.status_every_s):
                await changed.wait()
            await trio.sleep(timers.status_gap_s)

    async def end_with_trust(self, channel: WebSocketChannel) -> None:
        """Close when the peer is trusted no longer, or under another certificate."""
        trusted = self.server.peers.get(self.peer_id)
        while True:
            changed = self.server.peers.changed()
            now = self.server.peers.get(self.peer_id)
            if now is None or (
                trusted is not None and now.certificate_pem != trusted.certificate_pem
            ):
                break
            await changed.wait()
        await channel.close(POLICY_VIOLATION, "this node is not trusted any more")

    async def _perform(self, method: str, command: object) -> object:
        if method in REQUESTS:
            return await self._request(method, command)
        if method in self.server.methods:
            return await self.server.methods[method](self.peer_id, command)
        match method:
            case "load_local":
                reason = LoadRefusalReason.UNFENCED_FROM_NETWORK
                text = refusal_text(reason, Term(0), None)
                raise RpcError(RpcCode.NOT_ALLOWED, text, {"reason": reason.value})
            case "status":
                return {"report": report_to_json(self.server.report())}
            case "inventory":
                return inventory_to_json(self.server.report().models)
            case _:
                name = shorten(method)
                raise RpcError(
                    RpcCode.UNKNOWN_METHOD, f"no command {name!r} is served here"
                )

    async def _request(self, method: str, command: object) -> object:
        try:
            request, settings = request_from_json(method, command)
        except ConfigError as error:
            raise RpcError(RpcCode.INVALID_PARAMS, str(error)) from error
        check_request(request, settings, sender=self.peer_id)
        reply = await self.server.stage_side.request(
            request, origin=Origin.NETWORK, settings=settings
        )
        return reply_to_json(reply)


async def _tell(rpc: RpcConnection, report: NodeReport | None) -> None:
    document = None if report is None else report_to_json(report)
    try:
        await rpc.notify(STATUS_UPDATE, {"report": document})
    except LocalProtocolError as error:
        assert report is not None
        logger.warning("event=report_too_long reason=%r", str(error))
        # Thousands of model files: peers need the stages and the memory more.
        shortened = report_to_json(attrs.evolve(report, models=()))
        await rpc.notify(STATUS_UPDATE, {"report": shortened})


async def serve_control(
    listener: trio.SocketListener,
    *,
    identity: Identity,
    peers: PeerBook,
    stage_side: StageSide,
    joining: JoinDesk | None = None,
    methods: Mapping[str, Callable[[NodeId, object], Awaitable[object]]] | None = None,
    report: Callable[[], NodeReport] | None = None,
    on_peer: Callable[[NodeId], None] = ignore_peer,
    timers: ControlTimers | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve control connections until cancelled; the listener is closed at the end.

    Args:
        listener: Bound and listening.
        identity: This node.
        peers: Whom it trusts; changes take effect at once.
        stage_side: Its stages and fences.
        joining: Who answers `join`.
        methods: Further commands, by name: sender and command in, result out.
        report: What is pushed and answered; `NodeRegistry.own_report` completes it.
        on_peer: Told when a peer has come in; `NodeRegistry.knock` dials it at once.
        timers: Bounds and rhythms.
        task_status: Told once it accepts.
    """
    server = ControlServer(
        identity=identity,
        peers=peers,
        stage_side=stage_side,
        joining=joining,
        methods=methods or {},
        report=report or stage_side.report,
        on_peer=on_peer,
        timers=timers or ControlTimers(),
    )
    async with trio.open_nursery() as connections:
        task_status.started()
        await trio.serve_listeners(
            server.serve, [listener], handler_nursery=connections
        )
