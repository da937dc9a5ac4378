"""Joining: an invitation printed on one node makes two nodes trust each other.

Theory of operation: the token names the inviting node by address and id and holds a
secret that is good once, for fifteen minutes, in the memory of the daemon that made it.
The joiner compares the id of the certificate it sees, so it talks to the inviter and
nobody between; its HMAC over both certificates shows that it was invited and binds its
own certificate to the invitation.  Then each side stores the other's certificate.
Repeating the very same join is harmless: its answer may have been lost.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections import deque
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.config.convert import structure
from skippyd.config.daemon import UNSPECIFIED
from skippyd.config.endpoints import parse_endpoint
from skippyd.coordination.control_timers import (
    CONTROL_ALPN,
    JOIN,
    JOIN_PATH,
    ControlTimers,
)
from skippyd.coordination.identity import certificate_der
from skippyd.coordination.join_token import (
    Invitation,
    JoinAnswer,
    JoinRequest,
    join_proof,
    parse_token,
)
from skippyd.coordination.peers import checked_peer
from skippyd.errors import ConfigError, ExitCode, SkippyError
from skippyd.net.jsonrpc import RpcConnection
from skippyd.net.jsonrpc_messages import RpcCode, RpcError
from skippyd.net.tls import (
    TlsRefusedError,
    peer_certificate_der,
    shake_hands,
    spoken_protocol,
    unverified_client_context,
)
from skippyd.net.websocket import ChannelClosedError, open_websocket


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.coordination.identity import Identity
    from skippyd.coordination.peers import Peer, PeerBook
    from skippyd.net.websocket import WebSocketChannel

logger = logging.getLogger(__name__)

INVITE_SECONDS = 15 * 60
SECRET_BYTES = 32
MOST_INVITES = 16
ENDED_INVITES_REMEMBERED = 64
FAILURES_PER_MINUTE = 10
HOSTS_REMEMBERED = 256

_MINUTE_S = 60.0


class JoinError(SkippyError):
    """Joining failed; the message says on which side and what to do."""


class JoinUnreachableError(JoinError):
    """The inviting node cannot be reached."""

    exit_code = ExitCode.UNREACHABLE


@attrs.define(eq=False, kw_only=True)
class _OpenInvite:
    secret: bytes
    until: float
    used_by: str | None = None


@attrs.define(eq=False, kw_only=True)
class Joining:
    """The invitations of this node, and the desk that answers `join`.

    Args:
        identity: This node.
        peers: Where joined nodes are stored.
        name: What people call this node.
        address: HOST:PORT that others reach its control server at.
        wall_ms: Wall clock in unix milliseconds; only for telling people.
    """

    identity: Identity
    peers: PeerBook
    name: str
    address: str
    wall_ms: Callable[[], int]
    _invites: dict[str, _OpenInvite] = attrs.field(factory=dict, init=False)
    _ended: deque[str] = attrs.field(
        factory=lambda: deque(maxlen=ENDED_INVITES_REMEMBERED), init=False
    )
    _failed_at: dict[str, deque[float]] = attrs.field(factory=dict, init=False)

    def invite(self) -> Invitation:
        """Make an invitation for one node.

        Raises:
            JoinError: Too many are open, or this node has no address to name.
        """
        if parse_endpoint(self.address).host in UNSPECIFIED:
            raise JoinError(
                f"this node listens on {self.address}, which is no address to reach "
                "it at; set [control] advertise = HOST:PORT"
            )
        self._drop_expired()
        if len(self._invites) >= MOST_INVITES:
            raise JoinError(
                f"{MOST_INVITES} invitations are open; use one, or wait until they end"
            )
        secret = secrets.token_bytes(SECRET_BYTES)
        invitation = Invitation(
            address=self.address,
            node_id=self.identity.node_id,
            secret=secret.hex(),
            expires_unix_ms=self.wall_ms() + INVITE_SECONDS * 1000,
        )
        # Lifetimes go by the clock that nobody sets.
        until = trio.current_time() + INVITE_SECONDS
        self._invites[invitation.invite_id] = _OpenInvite(secret=secret, until=until)
        return invitation

    def admit(self, params: object, *, host: str) -> dict[str, object]:
        """Take a joining node in and return this node's part.

        Args:
            params: What it said.
            host: Where it comes from.

        Raises:
            RpcError: Why not.
        """
        self._check_rate(host)
        try:
            request = structure(params, JoinRequest, source="join")
            peer = checked_peer(
                address=_reachable(request.address, host),
                certificate_pem=request.certificate_pem,
                name=request.name,
            )
            invite = self._invite_for(request)
        except ConfigError as error:
            self._note_failure(host)
            logger.warning("event=join_refused host=%s reason=%r", host, str(error))
            raise RpcError(RpcCode.REFUSED, str(error)) from error
        # Used from now on, whatever the disk says.
        invite.used_by = request.certificate_pem
        try:
            self.peers.add(peer)
        except ConfigError as error:
            raise RpcError(RpcCode.INTERNAL, str(error)) from error
        logger.warning(
            "event=node_joined peer=%s address=%s", peer.node_id, peer.address
        )
        answer = JoinAnswer(
            name=self.name, certificate_pem=self.identity.certificate_pem
        )
        return attrs.asdict(answer)

    def _invite_for(self, request: JoinRequest) -> _OpenInvite:
        self._drop_expired()
        remedy = "make a new one with `skippyctl invite`"
        invite = self._invites.get(request.invite_id)
        if invite is None:
            known = request.invite_id in self._ended
            what = "has expired" if known else "is not known to this daemon"
            raise ConfigError(f"the invitation {what}; {remedy}")
        proof = join_proof(
            invite.secret,
            certificate_der(self.identity.certificate_pem),
            certificate_der(request.certificate_pem),
        )
        if not hmac.compare_digest(proof.encode(), request.proof.encode()):
            raise ConfigError(
                "the proof of the invitation is wrong: the token was changed, or the "
                "certificates were exchanged on the way"
            )
        if invite.used_by not in {None, request.certificate_pem}:
            raise ConfigError(f"the invitation was used by another node; {remedy}")
        return invite

    def _drop_expired(self) -> None:
        now = trio.current_time()
        for invite_id, invite in list(self._invites.items()):
            if invite.until <= now:
                del self._invites[invite_id]
                self._ended.append(invite_id)

    def _check_rate(self, host: str) -> None:
        failed_at = self._failed_at.get(host, deque())
        is_full = len(failed_at) == FAILURES_PER_MINUTE
        if is_full and failed_at[0] > trio.current_time() - _MINUTE_S:
            raise RpcError(
                RpcCode.TOO_MANY_REQUESTS,
                f"{FAILURES_PER_MINUTE} joins from {host} failed within a minute; "
                "wait a minute",
            )

    def _note_failure(self, host: str) -> None:
        if host not in self._failed_at and len(self._failed_at) >= HOSTS_REMEMBERED:
            del self._failed_at[next(iter(self._failed_at))]
        failed_at = self._failed_at.setdefault(host, deque(maxlen=FAILURES_PER_MINUTE))
        failed_at.append(trio.current_time())


async def join_node(
    token: str,
    *,
    identity: Identity,
    peers: PeerBook,
    name: str,
    address: str,
    timers: ControlTimers | None = None,
) -> Peer:
    """Join the node that a token invites to, and store it.

    Args:
        token: What `skippyctl invite` printed there.
        identity: This node.
        peers: Where the other node is stored.
        name: What people call this node.
        address: HOST:PORT that others reach this node's control server at.
        timers: Bounds.

    Raises:
        UsageError: The token is none.
        JoinUnreachableError: Nobody answers, or not in time.
        JoinError: The other node refuses, or is another node than the token says.
    """
    invitation = parse_token(token)
    if invitation.node_id == identity.node_id:
        raise JoinError("this token was made on this node; use it on another one")
    bounds = timers or ControlTimers()
    answer: object = None
    with trio.move_on_after(bounds.opening_s * 2) as patience:
        try:
            answer = await _asked(invitation, identity, name, address)
        except (OSError, ChannelClosedError, TlsRefusedError) as error:
            raise JoinUnreachableError(
                f"cannot join {invitation.address}: {error}"
            ) from error
        except RpcError as error:
            raise JoinError(f"{invitation.address} refuses: {error}") from error
    if patience.cancelled_caught:
        raise JoinUnreachableError(
            f"{invitation.address} did not answer within {bounds.opening_s * 2:g} s"
        )
    return _stored(answer, invitation, peers)


async def _asked(
    invitation: Invitation, identity: Identity, name: str, address: str
) -> object:
    endpoint = parse_endpoint(invitation.address)
    stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
    context = unverified_client_context(alpn=[CONTROL_ALPN])
    tls = trio.SSLStream(stream, context)
    try:
        key = await shake_hands(tls)
        if key != invitation.node_id:
            raise TlsRefusedError(
                f"node {key} answers there, the token is of {invitation.node_id}; "
                "nothing was sent"
            )
        if spoken_protocol(tls) != CONTROL_ALPN:
            raise TlsRefusedError(f"it does not speak {CONTROL_ALPN}")
        request = JoinRequest(
            invite_id=invitation.invite_id,
            name=name,
            address=address,
            certificate_pem=identity.certificate_pem,
            proof=join_proof(
                bytes.fromhex(invitation.secret),
                peer_certificate_der(tls),
                certificate_der(identity.certificate_pem),
            ),
        )
        async with open_websocket(
            tls, host=invitation.address, path=JOIN_PATH
        ) as channel:
            return await _call(channel, request)
    finally:
        await trio.aclose_forcefully(stream)


async def _call(channel: WebSocketChannel, request: JoinRequest) -> object:
    rpc = RpcConnection(channel)
    answer: object = None
    failure: SkippyError | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rpc.run)
        try:
            answer = await rpc.call(JOIN, attrs.asdict(request))
        except (RpcError, ChannelClosedError) as error:
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return answer


def _stored(answer: object, invitation: Invitation, peers: PeerBook) -> Peer:
    try:
        said = structure(answer, JoinAnswer, source="answer")
        peer = checked_peer(
            node_id=invitation.node_id,
            name=said.name,
            address=invitation.address,
            certificate_pem=said.certificate_pem,
        )
        peers.add(peer)
    except ConfigError as error:
        raise JoinError(
            f"{invitation.address} took this node in, but cannot be stored here: {error}"
        ) from error
    return peer


def _reachable(address: str, host: str) -> str:
    """Where a joiner is: what it says, or where it comes from if it says anywhere."""
    endpoint = parse_endpoint(address, port_zero_allowed=False)
    if endpoint.host not in UNSPECIFIED:
        return address
    return str(attrs.evolve(endpoint, host=host))
