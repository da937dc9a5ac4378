"""One node's own connection to one other node, kept as long as the peer is trusted.

Theory of operation: `PeerLink.run` dials, says hello, listens, and dials again with a
growing, jittered wait when the connection ends.  The peer counts as available from its
first status update to the end of the connection or to the silence bound, whichever is
first; requests go over the same connection, so what can be asked is what was heard.
"""

from __future__ import annotations

import logging
import math
import secrets
from statistics import median
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.config.endpoints import parse_endpoint
from skippyd.coordination.control_frames import (
    LONGEST_DEADLINE_MS,
    frame_of,
    hello_of,
    read_hello,
)
from skippyd.coordination.control_json import report_from_json
from skippyd.coordination.control_timers import (
    CONTROL_ALPN,
    CONTROL_PATH,
    HELLO,
    STATUS_UPDATE,
    ControlTimers,
    watch_for_death,
)
from skippyd.coordination.node_words import label
from skippyd.coordination.ports import NodeReport, NodeUnreachableError, PeerInfo
from skippyd.errors import ConfigError, LocalProtocolError
from skippyd.net.interfaces import interface_of
from skippyd.net.jsonrpc import RpcConnection
from skippyd.net.jsonrpc_messages import RpcCode, RpcError
from skippyd.net.tls import (
    TlsRefusedError,
    client_context,
    shake_hands,
    spoken_protocol,
)
from skippyd.net.websocket import (
    POLICY_VIOLATION,
    ChannelClosedError,
    WebSocketChannel,
    WebSocketLimits,
    open_websocket,
)


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.coordination.identity import Identity
    from skippyd.coordination.peers import Peer
    from skippyd.ids import NodeId

logger = logging.getLogger(__name__)

_ROUND_TRIPS_KEPT = 9

REFUSED_BY_PEER = "it refuses this node: "
"""Before the peer's words: an expected generation in them is the peer's."""

STALL_S = 1.0
"""A silence bound noticed this late says that this process was stopped, not the peer."""
_MS_PER_S = 1000


@attrs.frozen(kw_only=True)
class LinkOwner:
    """What a link needs of the node it belongs to.

    Args:
        identity: Who dials.
        own_report: What it says in its hello.
        wall_ms: Wall clock in unix milliseconds.
        changed: Told when the peer became available or not, or said something new.
        timers: Bounds and rhythms.
    """

    identity: Identity
    own_report: Callable[[], NodeReport]
    wall_ms: Callable[[], int]
    changed: Callable[[NodeId, bool], None]
    timers: ControlTimers


@attrs.define(eq=False)
class PeerLink:
    """The way to one peer.

    Args:
        peer: Whom, where, and what it must show.
    """

    peer: Peer
    _owner: LinkOwner
    _rpc: RpcConnection | None = attrs.field(default=None, init=False)
    _report: NodeReport | None = attrs.field(default=None, init=False)
    _is_available: bool = attrs.field(default=False, init=False)
    _reason: str = attrs.field(default="not reached yet", init=False)
    _silence: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _heard_unix_ms: int | None = attrs.field(default=None, init=False)
    _round_trips_ms: list[float] = attrs.field(factory=list, init=False)
    _local_address: str | None = attrs.field(default=None, init=False)
    _interface: str | None = attrs.field(default=None, init=False)
    _knocked: trio.Event = attrs.field(factory=trio.Event, init=False)
    _failures: int = attrs.field(default=0, init=False)

    @property
    def available_report(self) -> NodeReport | None:
        """The peer's last report while it is available."""
        return self._report if self._is_available else None

    def info(self) -> PeerInfo:
        """Return the peer as operators see it."""
        trips = self._round_trips_ms
        return PeerInfo(
            node_id=self.peer.node_id,
            name=self._report.name if self._report else self.peer.name,
            address=self.peer.address,
            is_available=self._is_available,
            rtt_ms=median(trips) if trips else None,
            interface=self._interface,
            local_address=self._local_address,
            report=self._report,
            last_heard_unix_ms=self._heard_unix_ms,
            reason="" if self._is_available else self._reason,
        )

    def knock(self) -> None:
        """Dial now instead of after the rest of the wait: the peer is back."""
        self._knocked.set()

    async def run(self) -> None:
        """Keep a connection to the peer until cancelled."""
        try:
            while True:
                self._end(await self._attempt())
                self._failures += 1
                # A knock before this wait counts: it came while the old one ended.
                with trio.move_on_after(self._wait_s()):
                    await self._knocked.wait()
                self._knocked = trio.Event()
        finally:
            self._end("this node gave the connection up", level=logging.INFO)

    async def ask(
        self, method: str, command: dict[str, object], *, timeout_s: float
    ) -> object:
        """Send one command and return what the peer answers.

        Raises:
            NodeUnreachableError: It cannot be asked, did not answer in time, or refused
                the frame; the message names it.
        """
        name = self.peer.name or label(self.peer.node_id, "")
        who = f"node {name} at {self.peer.address}"
        rpc = self._rpc
        if rpc is None:
            raise NodeUnreachableError(f"{who} cannot be reached: {self._reason}")
        deadline_ms = min(max(1, math.ceil(timeout_s * _MS_PER_S)), LONGEST_DEADLINE_MS)
        frame = frame_of(self._owner.identity.node_id, deadline_ms, command)
        try:
            with trio.move_on_after(timeout_s):
                return await rpc.call(method, frame)
        except ChannelClosedError as error:
            raise NodeUnreachableError(
                f"{who} was lost during {method}: {error}"
            ) from error
        except RpcError as error:
            raise NodeUnreachableError(f"{who} refused {method}: {error}") from error
        except LocalProtocolError as error:
            raise NodeUnreachableError(
                f"{method} cannot be sent to {who}: {error}"
            ) from error
        raise NodeUnreachableError(
            f"{who} did not answer {method} within {timeout_s:g} s"
        )

    async def _attempt(self) -> str:
        opening_s = self._owner.timers.opening_s
        reason = f"did not say hello within {opening_s:g} s"
        try:
            with trio.move_on_after(opening_s) as opening:
                endpoint = parse_endpoint(self.peer.address)
                async with await trio.open_tcp_stream(
                    endpoint.host, endpoint.port
                ) as stream:
                    reason = await self._connected(stream, opening)
        except OSError as error:
            # Several addresses of one name fail together in a group.
            cause = error.__cause__
            if isinstance(cause, BaseExceptionGroup):
                cause = cause.exceptions[0]
            return str(cause or error)
        except (TlsRefusedError, ChannelClosedError, RpcError, ConfigError) as error:
            return str(error)
        # The guard: a fault of ours in one link must not end the others.
        except Exception as error:
            logger.exception("event=control_link_failed peer=%s", self.peer.node_id)
            return f"this node failed: {type(error).__name__}; its log says more"
        return reason

    async def _connected(
        self, stream: trio.SocketStream, opening: trio.CancelScope
    ) -> str:
        timers = self._owner.timers
        watch_for_death(stream, timers)
        local = str(stream.socket.getsockname()[0])
        identity = self._owner.identity
        context = client_context(
            identity.own_certificate,
            trusted_pem=self.peer.certificate_pem,
            alpn=[CONTROL_ALPN],
        )
        tls = trio.SSLStream(stream, context)
        key = await shake_hands(tls)
        if key != self.peer.node_id:
            raise TlsRefusedError(
                f"node {key} answers at {self.peer.address}, not {self.peer.node_id}"
            )
        if spoken_protocol(tls) != CONTROL_ALPN:
            raise TlsRefusedError(f"the peer does not speak {CONTROL_ALPN}")
        self._local_address, self._interface = local, interface_of(local)
        limits = WebSocketLimits(handshake_s=timers.opening_s)
        is_open = False
        try:
            async with open_websocket(
                tls, host=self.peer.address, path=CONTROL_PATH, limits=limits
            ) as channel:
                is_open = True
                return await self._talk(channel, opening)
        except ChannelClosedError as error:
            if is_open:
                raise
            # A server cannot say in TLS 1.3 that it refuses a client's certificate
            # before the client takes the handshake for done.
            raise ChannelClosedError(
                f"{error}; most likely the peer does not store this node's "
                "certificate: join it again"
            ) from error

    async def _talk(self, channel: WebSocketChannel, opening: trio.CancelScope) -> str:
        rpc = RpcConnection(channel, on_notification=self._notified)
        ended: list[str] = []

        async def read() -> None:
            ended.append(await rpc.run())
            nursery.cancel_scope.cancel()

        refusal = ""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            try:
                refusal = await self._greet(rpc)
            except ChannelClosedError as error:
                ended.append(str(error))
                nursery.cancel_scope.cancel()
            else:
                if refusal:
                    said = refusal.removeprefix(REFUSED_BY_PEER)
                    await channel.close(POLICY_VIOLATION, said)
                else:
                    opening.deadline = math.inf
                    self._rpc, self._silence = rpc, trio.CancelScope()
                    nursery.start_soon(self._measure, channel)
                    nursery.start_soon(self._end_with_silence, channel)
        if refusal:
            return refusal
        return ended[0] if ended else "the connection ended"

    async def _greet(self, rpc: RpcConnection) -> str:
        """Exchange first words; returns why the two nodes cannot talk, or nothing."""
        own = hello_of(self._owner.own_report())
        try:
            answer = await rpc.call(HELLO, own)
        except RpcError as error:
            return f"{REFUSED_BY_PEER}{error}"
        try:
            read_hello(answer, peer_id=self.peer.node_id)
        except RpcError as error:
            return str(error)
        return ""

    def _notified(self, method: str, params: object) -> None:
        if method != STATUS_UPDATE or not isinstance(params, dict):
            raise RpcError(RpcCode.INVALID_REQUEST, "only status_update is expected")
        told = params.get("report")
        if told is None and self._report is None:
            raise RpcError(RpcCode.INVALID_PARAMS, "no report was told before this one")
        if told is not None:
            self._take_report(told)
        self._silence.deadline = trio.current_time() + self._owner.timers.silence_s
        self._heard_unix_ms = self._owner.wall_ms()
        if told is not None or not self._is_available:
            self._is_available, self._reason, self._failures = True, "", 0
            self._owner.changed(self.peer.node_id, True)

    def _take_report(self, document: object) -> None:
        try:
            report = report_from_json(document)
        except ConfigError as error:
            raise RpcError(RpcCode.INVALID_PARAMS, str(error)) from error
        if report.node_id != self.peer.node_id:
            raise RpcError(
                RpcCode.INVALID_PARAMS, f"the report is about node {report.node_id}"
            )
        self._report = report

    async def _measure(self, channel: WebSocketChannel) -> None:
        while True:
            try:
                trip_ms = await channel.ping()
            except ChannelClosedError:
                # The reader ends the link with the reason.
                return
            self._round_trips_ms = [*self._round_trips_ms, trip_ms][-_ROUND_TRIPS_KEPT:]
            await trio.sleep(self._owner.timers.status_every_s)

    async def _end_with_silence(self, channel: WebSocketChannel) -> None:
        silence_s = self._owner.timers.silence_s
        wait_s = silence_s
        while True:
            self._silence = trio.CancelScope(deadline=trio.current_time() + wait_s)
            with self._silence:
                await trio.sleep_forever()
            if trio.current_time() - self._silence.deadline < STALL_S:
                break
            # This process itself was stopped: what the peer said lies unread.
            wait_s = self._owner.timers.status_every_s
        # At once: saying goodbye to who does not answer takes its own time.
        reason = f"said nothing for {silence_s:g} s"
        self._end(reason)
        await channel.close(POLICY_VIOLATION, reason)

    def _end(self, reason: str, *, level: int = logging.WARNING) -> None:
        was_available, self._is_available = self._is_available, False
        had_connection, self._rpc = self._rpc is not None, None
        self._round_trips_ms = []
        if was_available or not had_connection or not self._reason:
            self._reason = reason
        if was_available:
            logger.log(
                level, "event=node_lost peer=%s reason=%r", self.peer.node_id, reason
            )
            self._owner.changed(self.peer.node_id, False)

    def _wait_s(self) -> float:
        timers = self._owner.timers
        doubled = timers.first_retry_s * (1 << min(self._failures - 1, 16))
        # Half of it is chance: nodes that lost each other together do not retry so.
        share = 0.5 + secrets.randbelow(1000) / 2000
        return min(doubled, timers.longest_retry_s) * share
