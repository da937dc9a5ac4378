"""Invitations and joins: both ways pinned, once, in time, and refusals on both sides."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.coordination.identity import certificate_der
from skippyd.coordination.join_token import JoinRequest, join_proof
from skippyd.coordination.joining import (
    FAILURES_PER_MINUTE,
    INVITE_SECONDS,
    MOST_INVITES,
    JoinError,
    Joining,
    JoinUnreachableError,
    join_node,
)
from skippyd.errors import ExitCode, UsageError
from skippyd.net.jsonrpc_messages import RpcCode, RpcError
from support.control_nodes import (
    QUICK,
    listen,
    make_node,
    running_nodes,
    until_available,
)


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.coordination.join_token import Invitation
    from skippyd.coordination.peers import Peer
    from support.control_nodes import ControlNode


async def joined(joiner: ControlNode, token: str) -> Peer:
    return await join_node(
        token,
        identity=joiner.identity,
        peers=joiner.peers,
        name=joiner.name,
        address=joiner.address,
        timers=QUICK,
    )


def request_of(joiner: ControlNode, invitation: Invitation, inviter_pem: str) -> object:
    proof = join_proof(
        bytes.fromhex(invitation.secret),
        certificate_der(inviter_pem),
        certificate_der(joiner.identity.certificate_pem),
    )
    return attrs.asdict(
        JoinRequest(
            invite_id=invitation.invite_id,
            name=joiner.name,
            address="127.0.0.1:9401",
            certificate_pem=joiner.identity.certificate_pem,
            proof=proof,
        )
    )


@pytest.fixture
def inviter(tmp_path: Path) -> ControlNode:
    node = make_node(tmp_path, "inviter")
    node.joining.address = "127.0.0.1:9401"
    return node


def admitted(desk: Joining, params: object, host: str = "127.0.0.1") -> object:
    return desk.admit(params, host=host)


@pytest.mark.slow
async def test_two_nodes_join_by_one_token_and_trust_each_other(tmp_path: Path) -> None:
    async with running_nodes(tmp_path, "a", "b", is_acquainted=False) as (a, b):
        token = a.joining.invite().token()
        peer = await joined(b, token)
        assert (peer.node_id, peer.name, peer.address) == (a.node_id, "a", a.address)
        assert a.peers.all() == (b.as_peer(),)
        assert b.peers.all() == (a.as_peer(),)
        await until_available(a, b)
        await until_available(b, a)


async def test_a_token_is_one_line_and_shows_no_secret_in_words(
    inviter: ControlNode,
) -> None:
    invitation = inviter.joining.invite()
    assert "\n" not in invitation.token()
    assert " " not in invitation.token()
    assert invitation.secret not in repr(invitation)
    assert invitation.expires_unix_ms == 1_700_000_000_000 + INVITE_SECONDS * 1000


@pytest.mark.slow
async def test_an_invitation_is_for_one_node(tmp_path: Path) -> None:
    async with running_nodes(tmp_path, "a", "b", "c", is_acquainted=False) as (a, b, c):
        token = a.joining.invite().token()
        await joined(b, token)
        with pytest.raises(JoinError, match="was used by another node") as caught:
            await joined(c, token)
        assert "skippyctl invite" in str(caught.value)
        assert [peer.name for peer in a.peers.all()] == ["b"]
        assert c.peers.all() == ()


@pytest.mark.slow
async def test_the_same_join_may_be_repeated(tmp_path: Path) -> None:
    """Its answer may have been lost on the way."""
    async with running_nodes(tmp_path, "a", "b", is_acquainted=False) as (a, b):
        token = a.joining.invite().token()
        await joined(b, token)
        assert (await joined(b, token)).node_id == a.node_id


async def test_a_token_for_another_key_sends_nothing(tmp_path: Path) -> None:
    """Who sits between sees neither the secret nor the proof."""
    async with running_nodes(tmp_path, "a", "b", is_acquainted=False) as (a, b):
        wrong = attrs.evolve(a.joining.invite(), node_id="ab" * 32)
        with pytest.raises(JoinUnreachableError, match="nothing was sent"):
            await joined(b, wrong.token())
        assert a.peers.all() == b.peers.all() == ()


async def test_nobody_at_the_address_is_told_as_such(tmp_path: Path) -> None:
    a, b = make_node(tmp_path, "a"), make_node(tmp_path, "b")
    await (await listen(a)).aclose()
    with pytest.raises(JoinUnreachableError, match=a.address) as caught:
        await joined(b, a.joining.invite().token())
    assert caught.value.exit_code is ExitCode.UNREACHABLE


@pytest.mark.slow
async def test_somebody_who_says_nothing_is_given_up(tmp_path: Path) -> None:
    a, b = make_node(tmp_path, "a"), make_node(tmp_path, "b")
    patient = attrs.evolve(QUICK, opening_s=0.1)
    async with await listen(a):
        with pytest.raises(JoinUnreachableError, match=r"within 0\.2 s"):
            await join_node(
                a.joining.invite().token(),
                identity=b.identity,
                peers=b.peers,
                name="b",
                address="127.0.0.1:9401",
                timers=patient,
            )


async def test_an_own_token_is_refused(inviter: ControlNode) -> None:
    with pytest.raises(JoinError, match="made on this node"):
        await joined(inviter, inviter.joining.invite().token())


async def test_an_expired_invitation_says_so(
    tmp_path: Path, inviter: ControlNode, autojump_clock: trio.testing.MockClock
) -> None:
    joiner = make_node(tmp_path, "joiner")
    invitation = inviter.joining.invite()
    params = request_of(joiner, invitation, inviter.identity.certificate_pem)
    await trio.sleep(INVITE_SECONDS)
    with pytest.raises(RpcError, match="has expired"):
        admitted(inviter.joining, params)


async def test_an_invitation_of_an_earlier_daemon_is_not_known(
    tmp_path: Path, inviter: ControlNode
) -> None:
    joiner = make_node(tmp_path, "joiner")
    invitation = inviter.joining.invite()
    params = request_of(joiner, invitation, inviter.identity.certificate_pem)
    later = make_node(tmp_path, "inviter")
    with pytest.raises(RpcError, match="not known to this daemon"):
        admitted(later.joining, params)


async def test_a_proof_over_other_certificates_is_refused(
    tmp_path: Path, inviter: ControlNode
) -> None:
    joiner, thief = make_node(tmp_path, "joiner"), make_node(tmp_path, "thief")
    invitation = inviter.joining.invite()
    params = request_of(joiner, invitation, inviter.identity.certificate_pem)
    assert isinstance(params, dict)
    params["certificate_pem"] = thief.identity.certificate_pem
    with pytest.raises(RpcError, match="proof of the invitation is wrong"):
        admitted(inviter.joining, params)
    assert inviter.peers.all() == ()


async def test_a_guess_is_refused_and_guessing_is_slowed_down(
    tmp_path: Path, inviter: ControlNode, autojump_clock: trio.testing.MockClock
) -> None:
    joiner = make_node(tmp_path, "joiner")
    invitation = inviter.joining.invite()
    good = request_of(joiner, invitation, inviter.identity.certificate_pem)
    assert isinstance(good, dict)
    bad = good | {"proof": hashlib.sha256(b"guess").hexdigest()}
    for _ in range(FAILURES_PER_MINUTE):
        with pytest.raises(RpcError) as refused:
            admitted(inviter.joining, bad)
        assert refused.value.code == RpcCode.REFUSED
    with pytest.raises(RpcError, match="wait a minute") as slowed:
        admitted(inviter.joining, good)
    assert slowed.value.code == RpcCode.TOO_MANY_REQUESTS
    assert admitted(inviter.joining, good, host="192.0.2.7")
    await trio.sleep(61)
    assert admitted(inviter.joining, good)


async def test_invitations_are_few(inviter: ControlNode) -> None:
    for _ in range(MOST_INVITES):
        inviter.joining.invite()
    with pytest.raises(JoinError, match="invitations are open"):
        inviter.joining.invite()


async def test_a_node_without_an_address_to_name_invites_nobody(
    inviter: ControlNode,
) -> None:
    inviter.joining.address = "0.0.0.0:9401"
    with pytest.raises(JoinError, match="advertise"):
        inviter.joining.invite()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"proof": None}, "proof"),
        ({"more": 1}, "unknown key"),
        ({"address": "127.0.0.1"}, "not an endpoint"),
        ({"address": "127.0.0.1:0"}, "port 0"),
        ({"certificate_pem": "nonsense"}, "no PEM certificate"),
        ({"name": "a\nb"}, "printable"),
        ({"proof": "ä"}, "proof of the invitation is wrong"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_in_words(
    tmp_path: Path, inviter: ControlNode, change: dict[str, object], words: str
) -> None:
    joiner = make_node(tmp_path, "joiner")
    invitation = inviter.joining.invite()
    params = request_of(joiner, invitation, inviter.identity.certificate_pem)
    assert isinstance(params, dict)
    with pytest.raises(RpcError, match=words):
        admitted(inviter.joining, params | change)
    assert inviter.peers.all() == ()


async def test_a_joiner_that_listens_anywhere_is_reached_where_it_comes_from(
    tmp_path: Path, inviter: ControlNode
) -> None:
    joiner = make_node(tmp_path, "joiner")
    invitation = inviter.joining.invite()
    params = request_of(joiner, invitation, inviter.identity.certificate_pem)
    assert isinstance(params, dict)
    admitted(inviter.joining, params | {"address": "0.0.0.0:9401"}, host="192.0.2.7")
    assert [peer.address for peer in inviter.peers.all()] == ["192.0.2.7:9401"]


async def test_nonsense_is_no_token(inviter: ControlNode) -> None:
    with pytest.raises(UsageError, match="no invitation"):
        await joined(inviter, "skippy-join-1.abc")
