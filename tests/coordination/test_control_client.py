"""One link to one peer, and servers that are not what they should be."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.coordination.control_client import LinkOwner, PeerLink
from skippyd.coordination.control_frames import hello_of
from skippyd.coordination.control_json import report_to_json
from skippyd.coordination.control_timers import CONTROL_ALPN, CONTROL_PATH
from skippyd.coordination.ports import NodeUnreachableError
from skippyd.ids import NodeId
from skippyd.net.jsonrpc import RpcConnection
from skippyd.net.jsonrpc_messages import RpcCode, RpcError
from skippyd.net.tls import server_context
from skippyd.net.websocket import ChannelClosedError, accept_websocket
from support.control_nodes import QUICK, ControlNode, listen, make_node


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

pytestmark = pytest.mark.watchdog(60)

IMPATIENT = attrs.evolve(QUICK, opening_s=0.3, first_retry_s=30.0, longest_retry_s=60.0)


@attrs.define(eq=False)
class FalseServer:
    """A server that shows the right certificate and says what it is told to.

    Args:
        node: Whose certificate it shows.
        hello: What it answers to hello.
        pushes: What it notifies afterwards: method and params.
        answers: What it answers to everything else.
    """

    node: ControlNode
    hello: dict[str, object]
    pushes: list[tuple[str, object]]
    answers: object = None

    async def serve(self, stream: trio.SocketStream) -> None:
        context = server_context(
            self.node.identity.own_certificate,
            trusted_pems=[peer.certificate_pem for peer in self.node.peers.all()],
            alpn=[CONTROL_ALPN],
        )
        tls = trio.SSLStream(stream, context, server_side=True)
        try:
            async with accept_websocket(tls, paths={CONTROL_PATH}) as channel:
                await self._talk(RpcConnection(channel, handler=self._answer))
        except ChannelClosedError:
            await trio.aclose_forcefully(stream)

    async def _talk(self, rpc: RpcConnection) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(rpc.run)
            for method, params in self.pushes:
                await rpc.notify(method, params)

    async def _answer(self, method: str, params: object) -> object:
        await trio.lowlevel.checkpoint()
        if method == "hello":
            return self.hello
        if isinstance(self.answers, RpcError):
            raise self.answers
        return self.answers


@attrs.define(eq=False)
class Rig:
    """A link and what it reported."""

    link: PeerLink
    server: ControlNode
    client: ControlNode
    changes: list[tuple[NodeId, bool]]

    @property
    def reason(self) -> str:
        return self.link.info().reason

    async def expect(self, is_true: Callable[[], bool]) -> None:
        with trio.fail_after(5):
            while not is_true():
                await trio.testing.wait_all_tasks_blocked(0.005)


@asynccontextmanager
async def linked(
    folder: Path,
    serve: Callable[[ControlNode], Callable[[trio.SocketStream], Awaitable[object]]],
) -> AsyncIterator[Rig]:
    """A running link to whatever `serve` makes of the server's node."""
    server, client = make_node(folder, "server"), make_node(folder, "client")
    listener = await listen(server)
    await (await listen(client)).aclose()
    server.peers.add(client.as_peer())
    changes: list[tuple[NodeId, bool]] = []
    owner = LinkOwner(
        identity=client.identity,
        own_report=client.stages.report,
        wall_ms=lambda: 7,
        changed=lambda node_id, is_available: changes.append((node_id, is_available)),
        timers=IMPATIENT,
    )
    rig = Rig(PeerLink(server.as_peer(), owner), server, client, changes)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve(server), [listener])
        nursery.start_soon(rig.link.run)
        yield rig
        nursery.cancel_scope.cancel()


def false_server(
    *,
    hello: dict[str, object] | None = None,
    pushes: Callable[[ControlNode], list[tuple[str, object]]] | None = None,
    answers: object = None,
) -> Callable[[ControlNode], Callable[[trio.SocketStream], Awaitable[object]]]:
    """A server that says a good hello but for the changes, and pushes a good report."""

    def make(node: ControlNode) -> Callable[[trio.SocketStream], Awaitable[object]]:
        report = report_to_json(node.stages.said)
        good: list[tuple[str, object]] = [("status_update", {"report": report})]
        told = pushes(node) if pushes else good
        said = hello_of(node.stages.said) | (hello or {})
        return FalseServer(node, said, told, answers).serve

    return make


async def test_a_good_server_becomes_available(tmp_path: Path) -> None:
    async with linked(tmp_path, false_server(answers={"pong": True})) as rig:
        await rig.expect(lambda: rig.link.info().is_available)
        info = rig.link.info()
        assert info.report == rig.server.stages.said
        assert (info.name, info.last_heard_unix_ms, info.reason) == ("server", 7, "")
        assert rig.changes == [(rig.server.node_id, True)]
        answer = await rig.link.ask("ping", {}, timeout_s=5)
        assert answer == {"pong": True}


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        ({"generation": 9}, "bad skippy stage generation: expected 8, got 9"),
        ({"features": []}, "feature bundle whole"),
        ({"requester_id": "ab" * 32}, "its connection is of"),
    ],
)
async def test_a_server_of_another_release_is_told_and_left(
    tmp_path: Path, hello: dict[str, object], words: str
) -> None:
    async with linked(tmp_path, false_server(hello=hello)) as rig:
        await rig.expect(lambda: words in rig.reason)
        assert not rig.link.info().is_available


@pytest.mark.parametrize(
    ("pushed", "words"),
    [
        (("gossip", {}), "only status_update"),
        (("status_update", [1]), "params is an object"),
        (("status_update", {"report": None}), "no report was told"),
        (("status_update", {"report": {}}), "required and missing"),
    ],
)
async def test_a_server_that_pushes_nonsense_is_left(
    tmp_path: Path, pushed: tuple[str, object], words: str
) -> None:
    def pushes(_: ControlNode) -> list[tuple[str, object]]:
        return [pushed]

    async with linked(tmp_path, false_server(pushes=pushes)) as rig:
        await rig.expect(lambda: words in rig.reason)
        assert not rig.link.info().is_available


async def test_a_report_about_another_node_is_not_believed(tmp_path: Path) -> None:
    def pushes(node: ControlNode) -> list[tuple[str, object]]:
        other = attrs.evolve(node.stages.said, node_id=NodeId("ab" * 32))
        return [("status_update", {"report": report_to_json(other)})]

    async with linked(tmp_path, false_server(pushes=pushes)) as rig:
        await rig.expect(lambda: "the report is about node abab" in rig.reason)
        assert rig.changes == []


async def test_another_node_at_the_address_is_named(tmp_path: Path) -> None:
    stranger = make_node(tmp_path, "stranger")

    def serve(server: ControlNode) -> Callable[[trio.SocketStream], Awaitable[object]]:
        stranger.peers.add(server.peers.all()[0])
        return FalseServer(stranger, {}, []).serve

    async with linked(tmp_path, serve) as rig:
        await rig.expect(lambda: "not the stored one" in rig.reason)


@pytest.mark.slow
async def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async def silent(stream: trio.SocketStream) -> None:
        async with stream:
            await trio.sleep_forever()

    async with linked(tmp_path, lambda _: silent) as rig:
        await rig.expect(lambda: rig.reason == "did not say hello within 0.3 s")


async def test_a_server_that_does_not_know_this_node_is_guessed(tmp_path: Path) -> None:
    """TLS 1.3 lets it say so only after the handshake, and our library does not."""

    def serve(server: ControlNode) -> Callable[[trio.SocketStream], Awaitable[object]]:
        server.peers.remove(server.peers.all()[0].node_id)
        return FalseServer(server, {}, []).serve

    async with linked(tmp_path, serve) as rig:
        await rig.expect(lambda: "does not store this node's certificate" in rig.reason)


async def test_nobody_there_is_told_and_a_knock_dials_again_at_once(
    tmp_path: Path,
) -> None:
    doors: list[str] = []

    async def door(stream: trio.SocketStream) -> None:
        doors.append("opened")
        await stream.aclose()

    async with linked(tmp_path, lambda _: door) as rig:
        await rig.expect(lambda: len(doors) == 1 and "broke" not in rig.reason)
        await trio.testing.wait_all_tasks_blocked(0.02)
        with pytest.raises(NodeUnreachableError, match=r"server at 127\.0\.0\.1"):
            await rig.link.ask("status", {}, timeout_s=1)
        rig.link.knock()
        await rig.expect(lambda: len(doors) == 2)


async def test_a_refused_frame_names_node_and_command(tmp_path: Path) -> None:
    refusal = RpcError(RpcCode.INVALID_PARAMS, "no such stage")
    async with linked(tmp_path, false_server(answers=refusal)) as rig:
        await rig.expect(lambda: rig.link.info().is_available)
        with pytest.raises(NodeUnreachableError, match="refused load: no such stage"):
            await rig.link.ask("load", {}, timeout_s=5)


async def test_a_command_that_is_too_long_is_not_sent(tmp_path: Path) -> None:
    async with linked(tmp_path, false_server(answers={})) as rig:
        await rig.expect(lambda: rig.link.info().is_available)
        with pytest.raises(NodeUnreachableError, match="over the limit"):
            await rig.link.ask("load", {"x": "x" * (1 << 20)}, timeout_s=5)
        assert await rig.link.ask("load", {}, timeout_s=5) == {}


@pytest.mark.slow
async def test_a_half_open_connection_is_noticed_within_the_bound(
    tmp_path: Path,
) -> None:
    """The server's machine hangs after its first report: nothing ends, nothing comes."""
    async with linked(tmp_path, false_server()) as rig:
        await rig.expect(lambda: rig.link.info().is_available)
        begun = trio.current_time()
        await rig.expect(lambda: not rig.link.info().is_available)
        assert 0.2 < trio.current_time() - begun < 3
        assert rig.reason == "said nothing for 0.5 s"
        assert rig.changes == [
            (rig.server.node_id, True),
            (rig.server.node_id, False),
        ]
