"""Chains whose stages prove themselves by their nodes' keys, and who is turned away."""

from __future__ import annotations

import logging
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.core.wire.auth import lane_purpose
from skippyd.errors import (
    ConfigError,
    FailureCode,
    RemoteProtocolError,
    StageFailureError,
)
from skippyd.net.tcp import Address
from skippyd.stage import service
from skippyd.stage.dialling import connect_to_stage, open_connection
from skippyd.stage.driver import LinkTransport
from skippyd.stage.links import ReplyLink
from skippyd.stage.node import FlowControl, StageNode
from skippyd.stage.tls import StageTls
from skippyd.stage.waiting import LaneSignal
from support.scripted_runtime import ScriptedRuntime
from support.stage_room import (
    BRISK,
    RUN_KEY,
    becomes,
    blocking,
    config_of,
    driver_on,
    generate,
    identities,
    running_room,
    tls_table,
    tls_tables,
)


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.config.stage import StageTlsConfig
    from skippyd.coordination.identity import Identity
    from support.stage_room import Room

pytestmark = pytest.mark.watchdog(30)

PROMPT = list(range(1, 24))


@pytest.fixture
def nodes(tmp_path: Path) -> list[Identity]:
    return identities(tmp_path, 3)


async def refused(room: Room) -> StageFailureError:
    """How a request ends at stage 0 that cannot reach stage 1."""
    began = trio.current_time()
    with pytest.raises(StageFailureError) as caught:
        await room.lane()
    assert trio.current_time() - began < 4, "it hung"
    return caught.value


FLOWS = {
    "on credit": FlowControl(),
    "without credit": FlowControl(reply_credit_limit=0),
    "on more credit than the chain needs": FlowControl(reply_credit_limit=6),
}


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("count", [2, 3])
async def test_a_chain_under_tls_gives_the_tokens_of_a_plain_one(
    nodes: list[Identity], flow: str, count: int
) -> None:
    async with running_room(count, flow=FLOWS[flow]) as room:
        plain = await blocking(
            partial(generate, driver_on(await room.lane()), PROMPT, 6)
        )
    tables = tls_tables(nodes[:count])
    async with running_room(
        count, flow=FLOWS[flow], run_key=RUN_KEY, tls=tables
    ) as room:
        transport = await room.lane()
        for _ in range(2):
            driver = driver_on(transport)
            assert await blocking(partial(generate, driver, PROMPT, 6)) == plain
        assert room.flows == 0
        await room.close(transport)
        await becomes(lambda: room.held == [0] * count, "sessions are free")


TOLD = {
    "stage 0 dials the final stage": (True, False, False),
    "the final stage dials stage 0": (False, False, True),
}


@pytest.mark.parametrize("told", TOLD)
async def test_predictions_return_under_tls_whoever_dials(
    nodes: list[Identity], told: str
) -> None:
    async with running_room(
        told=TOLD[told], run_key=RUN_KEY, tls=tls_tables(nodes)
    ) as room:
        first, second = await room.lane(), await room.lane()
        results: list[list[int]] = []

        async def ask(index: int) -> None:
            transport = (first, second)[index]
            driver = driver_on(transport)
            results.append(await blocking(partial(generate, driver, PROMPT, 20)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, 0)
            nursery.start_soon(ask, 1)
        assert results[0] == results[1]
        assert len(results[0]) == 20
        assert len(first.lane.watched()) == 2  # downstream, and one return


async def test_no_writer_of_its_own_uses_a_connection_under_tls(
    nodes: list[Identity],
) -> None:
    tables = tls_tables(nodes[:2])
    async with running_room(2, run_key=RUN_KEY, tls=tables) as room:
        transport = await room.lane()
        await blocking(partial(generate, driver_on(transport), PROMPT, 1))
        assert transport.lane._downstream is not None
        assert transport.lane._downstream._forwarder is None


async def test_a_failure_far_down_is_told_under_tls(nodes: list[Identity]) -> None:
    async with running_room(run_key=RUN_KEY, tls=tls_tables(nodes)) as room:
        transport = await room.lane()
        await blocking(partial(generate, driver_on(transport), PROMPT, 1))
        room.scopes[2].cancel()

        def wait_for_news() -> None:
            while True:
                transport.lane.signal.wait(
                    transport.lane.watched(), time.monotonic() + 5
                )
                transport.lane.on_readable()

        with pytest.raises(StageFailureError, match="stage-2 is lost"):
            await blocking(wait_for_news)


async def test_a_node_that_is_not_of_the_chain_is_refused_to_both(
    nodes: list[Identity], caplog: pytest.LogCaptureFixture
) -> None:
    """Stage 1 holds another certificate for the place of stage 0."""
    chain, stranger = nodes[:2], nodes[2]
    tables = [tls_table(chain[0], chain), tls_table(chain[1], [stranger, chain[1]])]
    async with running_room(2, run_key=RUN_KEY, tls=tables) as room:
        failure = await refused(room)
        assert failure.code is FailureCode.PROTOCOL
        assert "does not know this node's certificate" in failure.message
        await becomes(lambda: "not the stored one" in caplog.text, "it is logged")


async def test_a_stage_on_another_node_than_planned_is_refused_to_both(
    nodes: list[Identity], caplog: pytest.LogCaptureFixture
) -> None:
    chain, stranger = nodes[:2], nodes[2]
    tables = [tls_table(chain[0], [chain[0], stranger]), tls_table(chain[1], chain)]
    async with running_room(2, run_key=RUN_KEY, tls=tables) as room:
        failure = await refused(room)
        assert failure.code is FailureCode.PROTOCOL
        assert "a certificate that is not the stored one" in failure.message
        assert "stage-1 at 127.0.0.1" in failure.message
        await becomes(lambda: "dropped a connection" in caplog.text, "it is logged")
        assert "does not know this node's certificate" in caplog.text


async def test_a_node_of_the_chain_at_the_wrong_place_is_refused(
    nodes: list[Identity], caplog: pytest.LogCaptureFixture
) -> None:
    """Stage 1 trusts all three, but expects stages 0 and 2 the other way round."""
    tables: list[StageTlsConfig] = tls_tables(nodes)
    tables[1] = tls_table(nodes[1], [nodes[2], nodes[1], nodes[0]])
    async with running_room(run_key=RUN_KEY, tls=tables) as room:
        failure = await refused(room)
        assert failure.code is FailureCode.PROTOCOL
        assert "expects another node at this stage's place" in failure.message
        await becomes(lambda: "place of stage 0" in caplog.text, "it is logged")
        assert nodes[0].node_id in caplog.text


async def test_another_run_is_refused_under_tls(nodes: list[Identity]) -> None:
    tables = tls_tables(nodes[:2])
    async with running_room(2, run_key=RUN_KEY, tls=tables) as room:
        below = room.nodes[1]
        below.config = attrs.evolve(below.config, transport_auth=bytes(32))
        failure = await refused(room)
        assert "transport_auth differs" in failure.message


async def test_a_plaintext_dialler_is_told_that_there_is_tls(
    nodes: list[Identity], caplog: pytest.LogCaptureFixture
) -> None:
    tables = [None, tls_table(nodes[1], nodes[:2])]
    async with running_room(2, run_key=RUN_KEY, tls=tables) as room:
        failure = await refused(room)
        assert failure.code is FailureCode.PROTOCOL
        assert "speaks TLS and this stage does not" in failure.message
        await becomes(lambda: "does not speak TLS" in caplog.text, "it is logged")


@pytest.mark.parametrize("run_key", [None, RUN_KEY], ids=["open", "keyed"])
async def test_a_dialler_under_tls_is_told_that_there_is_none(
    nodes: list[Identity],
    caplog: pytest.LogCaptureFixture,
    run_key: bytes | None,
) -> None:
    tables = [tls_table(nodes[0], nodes[:2]), None]
    async with running_room(2, run_key=RUN_KEY, tls=tables) as room:
        below = room.nodes[1]
        below.config = attrs.evolve(below.config, transport_auth=run_key)
        failure = await refused(room)
        assert failure.code is FailureCode.PROTOCOL
        assert "speak TLS" in failure.message
        if run_key is not None:
            await becomes(lambda: "the dialler speaks TLS" in caplog.text, "is logged")


async def test_a_driver_reaches_stage_0_as_its_own_node_only(
    nodes: list[Identity],
) -> None:
    tables = tls_tables(nodes[:2])
    async with running_room(2, run_key=RUN_KEY, tls=tables) as room:
        for who, may in ((0, True), (1, False)):
            own = StageTls(0, tls_table(nodes[who], nodes[:2]))
            address = room.nodes[0].config.bind_addr
            dial = partial(
                open_connection,
                Address(address.host, address.port),
                purpose=lane_purpose(-1, 0),
                run_key=RUN_KEY,
                source_host=None,
                timings=BRISK,
                io_timeout_s=5.0,
                place=own.place(0),
            )
            if may:
                connection = await blocking(dial)
                link = ReplyLink(connection, 0, peer_name="stage-0")
                driver = driver_on(LinkTransport(link, 5.0))
                assert len(await blocking(partial(generate, driver, PROMPT, 3))) == 3
                link.close()
            else:
                with pytest.raises(RemoteProtocolError, match="expects another node"):
                    await blocking(dial)


async def test_a_dialler_that_says_nothing_is_dropped_in_time(
    nodes: list[Identity],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(service, "OPENING_SECONDS", 0.05)
    tables = tls_tables(nodes[:2])
    async with running_room(2, run_key=RUN_KEY, tls=tables) as room:
        address = room.nodes[1].config.bind_addr
        with socket.create_connection((address.host, address.port), 5.0) as silent:
            assert await blocking(partial(silent.recv, 100)) == b""
        await becomes(lambda: "did not go on in time" in caplog.text, "it is logged")


def first_record() -> bytes:
    """How a dialler begins a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    begun = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        begun.do_handshake()
    return outgoing.read()


async def test_a_stage_that_ends_does_not_wait_for_handshakes(
    nodes: list[Identity], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    tables = tls_tables(nodes[:2])
    async with running_room(2, run_key=RUN_KEY, tls=tables) as room:
        address = room.nodes[1].config.bind_addr
        with socket.create_connection((address.host, address.port), 5.0) as silent:
            silent.send(first_record())
            assert await blocking(partial(silent.recv, 10_000)) != b""
            began = trio.current_time()
            room.scopes[1].cancel()
            while await blocking(partial(silent.recv, 10_000)):
                pass
            assert trio.current_time() - began < 3
        assert "dropped" not in caplog.text


@pytest.mark.parametrize("word", ["cancel", "interrupt"])
def test_a_lane_that_is_told_to_stop_gives_a_handshake_up(
    nodes: list[Identity], word: str
) -> None:
    """The other end accepts, takes the first handshake record and says nothing."""
    signal = LaneSignal(0, cancel_s=0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def take_hello() -> socket.socket:
            connection = listener.accept()[0]
            assert connection.recv(1) == b"\x16"
            getattr(signal, word)()
            return connection

        node = StageNode(
            config=config_of(
                0, [1, port], run_key=RUN_KEY, tls=tls_table(nodes[0], nodes[:2])
            ),
            runtime=ScriptedRuntime(index=0, is_final=False),
            timings=attrs.evolve(BRISK, ready=20.0),
        )
        with ThreadPoolExecutor(1) as pool:
            accepted = pool.submit(take_hello)
            began = time.monotonic()
            with pytest.raises(StageFailureError) as caught:
                connect_to_stage(
                    node,
                    Address("127.0.0.1", port),
                    1,
                    lane_purpose(0, 1),
                    patience_s=0.0,
                    waiter=signal,
                )
            assert caught.value.code is FailureCode.CANCELLED
            assert time.monotonic() - began < 3
            accepted.result().close()
    signal.close()


def test_a_certificate_that_is_not_the_nodes_is_said(nodes: list[Identity]) -> None:
    table = tls_table(nodes[0], nodes)
    wrong = attrs.evolve(table.peers[1], certificate=nodes[2].certificate_pem)
    broken = attrs.evolve(table, peers=(table.peers[0], wrong, table.peers[2]))
    with pytest.raises(
        ConfigError,
        match=f"certificate of stage 1: is of node .*, not {nodes[1].node_id}",
    ):
        StageTls(0, broken)


def test_a_key_that_is_not_there_is_said(nodes: list[Identity]) -> None:
    table = attrs.evolve(tls_table(nodes[0], nodes), key_path="/no/such/key")
    with pytest.raises(ConfigError, match="/no/such/key cannot be used"):
        StageTls(0, table)
