"""The control port: who comes in, in which order, and what hostile peers achieve."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.coordination import control_server
from skippyd.coordination.control_json import request_to_json
from skippyd.coordination.control_timers import CONTROL_ALPN, JOIN_PATH
from skippyd.core.coordinator.messages import ClaimCoordinator
from skippyd.net.jsonrpc import RpcConnection
from skippyd.net.jsonrpc_messages import RpcCode
from skippyd.net.tls import client_context, unverified_client_context
from skippyd.net.websocket import (
    ChannelClosedError,
)
from support.claims import claim
from support.control_nodes import make_node, report_of
from support.control_party import assert_still_serves, is_ended, party, refused


if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.watchdog(60)


async def test_hello_comes_first(tmp_path: Path) -> None:
    async with party(tmp_path) as both, both.rpc(says_hello=False) as rpc:
        error = await refused(rpc.call("status", both.frame()))
        assert (error.code, str(error)) == (RpcCode.NOT_READY, "say hello first")
        answer = await rpc.call("hello", both.hello())
        assert isinstance(answer, dict)
        assert answer["requester_id"] == both.server.node_id


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"generation": 9}, "bad skippy stage generation: expected 8, got 9"),
        ({"features": ["stage-control"]}, "needs its feature bundle whole"),
        ({"requester_id": "ab" * 32}, "its connection is of"),
    ],
)
async def test_another_release_or_identity_is_refused_by_name(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    async with party(tmp_path) as both, both.rpc(says_hello=False) as rpc:
        error = await refused(rpc.call("hello", both.hello() | change))
        assert words in str(error)
        assert (await refused(rpc.call("status", both.frame()))).code == (
            RpcCode.NOT_READY
        )


async def test_commands_are_answered(tmp_path: Path) -> None:
    async with party(tmp_path) as both, both.rpc() as rpc:
        status = await rpc.call("status", both.frame())
        assert isinstance(status, dict)
        assert status["report"]["name"] == "server"
        offered = ClaimCoordinator(claim(coordinator=both.client.node_id))
        command = request_to_json(offered, None)
        answer = await rpc.call("claim", both.frame(command))
        assert isinstance(answer, dict)
        assert answer["verdict"]["kind"] == "accepted"


async def test_local_loads_are_not_taken_from_the_network(tmp_path: Path) -> None:
    async with party(tmp_path) as both, both.rpc() as rpc:
        error = await refused(rpc.call("load_local", both.frame()))
        assert error.code == RpcCode.NOT_ALLOWED
        assert error.data == {"reason": "UnfencedFromNetwork"}
        assert "local admin socket only" in str(error)


@pytest.mark.parametrize(
    ("method", "command", "words"),
    [
        ("gossip", {}, "no command 'gossip'"),
        ("claim", {}, "claim.request: "),
        ("claim", {"request": {"claim": 7}}, "expected an object"),
        ("measure", {"targets": "all"}, "targets is a list"),
        ("measure", {"targets": ["x"] * 65}, "targets is a list"),
        ("route", {"model_id": 7}, "model_id and route"),
        ("route", {"model_id": "m", "route": {}}, "required and missing"),
    ],
)
async def test_a_command_with_a_defect_is_refused_in_words(
    tmp_path: Path, method: str, command: dict[str, object], words: str
) -> None:
    async with party(tmp_path) as both, both.rpc() as rpc:
        error = await refused(rpc.call(method, both.frame(command)))
        assert words in str(error)
        assert both.server.stages.asked == []


async def test_a_request_ends_with_its_deadline(tmp_path: Path) -> None:
    async with party(tmp_path) as both, both.rpc() as rpc:
        both.server.stages.held = trio.Event()
        offered = ClaimCoordinator(claim(coordinator=both.client.node_id))
        frame = both.frame(request_to_json(offered, None)) | {"deadline_ms": 50}
        error = await refused(rpc.call("claim", frame))
        assert error.code == RpcCode.DEADLINE


async def test_without_a_certificate_there_is_only_the_join_path(
    tmp_path: Path,
) -> None:
    anonymous = unverified_client_context(alpn=[CONTROL_ALPN])
    async with party(tmp_path) as both:
        async with both.channel(context=anonymous) as channel:
            with pytest.raises(ChannelClosedError, match="join first"):
                await channel.receive()
        async with both.rpc(JOIN_PATH, anonymous, says_hello=False) as rpc:
            for method in ("hello", "status", "claim"):
                error = await refused(rpc.call(method, both.frame()))
                assert error.code == RpcCode.NOT_ALLOWED
                assert str(error) == "this path answers join only"


async def test_a_certificate_that_is_not_stored_is_cut_off(tmp_path: Path) -> None:
    async with party(tmp_path) as both:
        stranger = make_node(tmp_path, "stranger")
        context = client_context(
            stranger.identity.own_certificate,
            trusted_pem=both.server.identity.certificate_pem,
            alpn=[CONTROL_ALPN],
        )
        with pytest.raises(ChannelClosedError):
            async with both.channel(context=context):
                pytest.fail("no channel may come about")
        await assert_still_serves(both)


@pytest.mark.slow
@pytest.mark.parametrize("alpn", ["skippy-bytes/1", "h2"])
async def test_another_protocol_is_cut_off(tmp_path: Path, alpn: str) -> None:
    async with party(tmp_path) as both:
        context = both.context()
        context.set_alpn_protocols([alpn])
        stream = await both.tls(context)
        with trio.fail_after(2):
            assert await is_ended(stream)
        await assert_still_serves(both)


async def test_one_peer_has_a_few_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "MOST_PER_PEER", 1)
    async with party(tmp_path) as both, both.rpc() as rpc:
        async with both.channel() as second:
            with pytest.raises(ChannelClosedError, match="open already"):
                await second.receive()
        assert await rpc.call("inventory", both.frame({})) == {"models": []}


@pytest.mark.slow
async def test_requests_of_one_peer_are_bounded(tmp_path: Path) -> None:
    async with party(tmp_path) as both, both.rpc() as rpc:
        both.server.stages.held = trio.Event()
        offered = ClaimCoordinator(claim(coordinator=both.client.node_id))
        frame = both.frame(request_to_json(offered, None))
        async with trio.open_nursery() as nursery:
            for _ in range(32):
                nursery.start_soon(rpc.call, "claim", frame)
            while len(both.server.stages.asked) < 32:
                await trio.testing.wait_all_tasks_blocked(0.01)
            error = await refused(rpc.call("claim", frame))
            assert error.code == RpcCode.TOO_MANY_REQUESTS
            both.server.stages.held.set()


async def test_status_is_pushed_at_once_and_again(tmp_path: Path) -> None:
    pushed: list[object] = []
    async with party(tmp_path) as both, both.channel() as channel:
        rpc = RpcConnection(
            channel, on_notification=lambda _, params: pushed.append(params)
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(rpc.run)
            await rpc.call("hello", both.hello())
            while len(pushed) < 2:
                await trio.testing.wait_all_tasks_blocked(0.01)
            both.server.stages.say(
                attrs.evolve(report_of(both.server.node_id, "server"), is_draining=True)
            )
            while pushed[-1] == {"report": None}:
                await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.cancel_scope.cancel()
    first, last = pushed[0], pushed[-1]
    assert isinstance(first, dict)
    assert isinstance(last, dict)
    assert first["report"]["is_draining"] is False
    assert pushed[1] == {"report": None}
    assert last["report"]["is_draining"] is True


async def test_a_peer_that_is_forgotten_is_told_and_cut_off(tmp_path: Path) -> None:
    async with party(tmp_path) as both, both.channel() as channel:
        both.server.peers.remove(both.client.node_id)
        with pytest.raises(ChannelClosedError, match="not trusted any more"):
            await channel.receive()


async def test_a_fault_of_ours_ends_one_request_only(tmp_path: Path) -> None:
    async with party(tmp_path) as both, both.rpc() as rpc:
        stop = {
            "request": json.loads(
                json.dumps(
                    request_to_json(
                        ClaimCoordinator(claim(coordinator=both.client.node_id)), None
                    )["request"]
                )
            )
        }
        both.server.stages.asked = None  # type: ignore[assignment]
        error = await refused(rpc.call("claim", both.frame(stop)))
        assert error.code == RpcCode.INTERNAL
        assert await rpc.call("inventory", both.frame({})) == {"models": []}
