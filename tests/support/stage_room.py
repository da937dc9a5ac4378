"""Stages of one chain in this process: scripted runtimes, real sockets, real threads."""

from __future__ import annotations

import contextlib
import itertools
import socket
from typing import TYPE_CHECKING, TypeVar

import attrs
import trio

from skippyd.config.endpoints import Endpoint
from skippyd.config.stage import (
    LoadMode,
    PeerConfig,
    StageConfig,
    StageTlsConfig,
    TlsPeerConfig,
)
from skippyd.config.topology import StageTopology, TopologyStage
from skippyd.coordination.identity import load_or_create
from skippyd.core.wire.auth import connection_token
from skippyd.core.wire.encode import encode_auth_preamble, encode_message, encode_ready
from skippyd.ids import ModelId, RunId, StageId, TopologyId
from skippyd.net.tcp import interrupt, prepare, send_buffers
from skippyd.stage.driver import ChainDriver, ChainTransport, LaneTransport
from skippyd.stage.lane import StageLane
from skippyd.stage.links import ReplyLink
from skippyd.stage.node import FlowControl, StageNode, StageTimings
from skippyd.stage.service import listen_on, serve_lanes
from support.scripted_runtime import ScriptedRuntime


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from skippyd.coordination.identity import Identity
    from skippyd.core.wire.messages import StageMessage

T = TypeVar("T")
HOST = "127.0.0.1"
RUN_KEY = bytes(range(32))
IDS = itertools.count(1)
BRISK = StageTimings(
    connect=2.0,
    connect_attempt=1.0,
    ready=2.0,
    frame=2.0,
    reply=5.0,
    sink=0.05,
    cancel=0.1,
)
"""Deadlines for tests; those that have to pass are shorter still."""


def config_of(
    index: int,
    ports: list[int],
    *,
    run_key: bytes | None = None,
    poll_us: int = 0,
    tls: StageTlsConfig | None = None,
) -> StageConfig:
    """The configuration of one stage of a chain with a layer each."""

    def peer(other: int) -> PeerConfig | None:
        if not 0 <= other < len(ports):
            return None
        return PeerConfig(
            stage_id=StageId(f"stage-{other}"),
            stage_index=other,
            endpoint=Endpoint(HOST, ports[other]),
        )

    return StageConfig(
        run_id=RunId("r"),
        topology_id=TopologyId("t"),
        model_id=ModelId("m"),
        stage_id=StageId(f"stage-{index}"),
        stage_index=index,
        layer_start=index,
        layer_end=index + 1,
        load_mode=LoadMode.RUNTIME_SLICE,
        bind_addr=Endpoint(HOST, ports[index]),
        lane_count=4,
        lane_poll_us=poll_us,
        prefill_chunk_size=4,
        upstream=peer(index - 1),
        downstream=peer(index + 1),
        transport_auth=run_key,
        tls=tls,
    )


def identities(folder: Path, count: int) -> list[Identity]:
    """Nodes, one for each stage."""
    made = []
    for index in range(count):
        (folder / f"node-{index}").mkdir()
        made.append(load_or_create(folder / f"node-{index}"))
    return made


def tls_table(own: Identity, chain: Sequence[Identity]) -> StageTlsConfig:
    """The table of one stage: who it is, and who it holds the others for."""
    return StageTlsConfig(
        certificate_path=str(own.certificate_path),
        key_path=str(own.key_path),
        peers=tuple(
            TlsPeerConfig(
                stage_index=index,
                node_id=node.node_id,
                certificate=node.certificate_pem,
            )
            for index, node in enumerate(chain)
        ),
    )


def tls_tables(chain: Sequence[Identity]) -> list[StageTlsConfig]:
    """The tables of a whole chain that agrees."""
    return [tls_table(node, chain) for node in chain]


def topology_of(ports: list[int]) -> StageTopology:
    """The whole chain."""
    return StageTopology(
        topology_id=TopologyId("t"),
        model_id=ModelId("m"),
        stages=tuple(
            TopologyStage(
                stage_id=StageId(f"stage-{index}"),
                stage_index=index,
                endpoint=Endpoint(HOST, port),
                layer_start=index,
                layer_end=index + 1,
                load_mode=LoadMode.RUNTIME_SLICE,
            )
            for index, port in enumerate(ports)
        ),
    )


@attrs.define(eq=False)
class Room:
    """A running chain.

    Args:
        nodes: Its stages.
        runtimes: What they compute with.
        scopes: Cancel one to end that stage's server.
    """

    nodes: list[StageNode]
    runtimes: list[ScriptedRuntime]
    scopes: list[trio.CancelScope]
    opened: list[LaneTransport] = attrs.Factory(list)

    async def lane(self) -> LaneTransport:
        """A lane of stage 0, open; closed at the end of the room."""
        node = self.nodes[0]
        transport = LaneTransport(lambda reply: StageLane(node=node, reply=reply))
        self.opened.append(transport)
        await blocking(lambda: transport.lane.open(patience_s=0.0))
        return transport

    async def close(self, transport: LaneTransport) -> None:
        """Close a lane before the room ends."""
        self.opened.remove(transport)
        await blocking(transport.lane.close)

    @property
    def held(self) -> list[int]:
        """Sessions of each stage."""
        return [len(runtime.sessions) for runtime in self.runtimes]

    @property
    def flows(self) -> int:
        """Bound and awaited prediction returns of all stages."""
        return sum(len(node.sinks) + len(node.waiters) for node in self.nodes)


def driver_on(transport: ChainTransport) -> ChainDriver:
    """A driver for a new session."""
    return ChainDriver(
        transport=transport, request_id=next(IDS), session_id=next(IDS), chunk=4
    )


def generate(driver: ChainDriver, prompt: list[int], count: int) -> list[int]:
    """Tokens of one whole request."""
    *body, token = prompt
    driver.prefill(body)
    driver.configure(None)
    tokens: list[int] = []
    for _ in range(count):
        token = driver.decode(token)
        tokens.append(token)
    driver.stop()
    return tokens


@contextlib.asynccontextmanager
async def running_room(
    count: int = 3,
    *,
    timings: StageTimings = BRISK,
    flow: FlowControl | None = None,
    run_key: bytes | None = None,
    told: tuple[bool, ...] | None = None,
    missing: tuple[int, ...] = (),
    poll_us: int = 0,
    tls: Sequence[StageTlsConfig | None] | None = None,
) -> AsyncIterator[Room]:
    """Run a chain of stages with scripted runtimes.

    Args:
        count: Stages.
        timings: Deadlines of all of them.
        flow: Prefill flow control of all of them.
        run_key: Demand tokens derived from it.
        told: Which stages know the topology; all by default.
        missing: Stages whose port nobody listens on.
        poll_us: How long lanes spin.
        tls: The table of each stage; none by default.
    """
    tables = tls or (None,) * count
    told = told or (True,) * count
    async with trio.open_nursery() as nursery:
        with contextlib.ExitStack() as sockets:
            listeners = [
                sockets.enter_context(listen_on(Endpoint(HOST, 0))) for _ in told
            ]
            ports = [listener.getsockname()[1] for listener in listeners]
            nodes = [
                StageNode(
                    config=config_of(
                        i, ports, run_key=run_key, poll_us=poll_us, tls=tables[i]
                    ),
                    runtime=ScriptedRuntime(index=i, is_final=i == count - 1),
                    topology=topology_of(ports) if told[i] else None,
                    timings=timings,
                    flow=FlowControl() if flow is None else flow,
                )
                for i in range(count)
            ]
            room = Room(nodes, [runtime_of(node) for node in nodes], [])
            for index, node in enumerate(nodes):
                if index in missing:
                    listeners[index].close()
                    room.scopes.append(trio.CancelScope())
                else:
                    scope = await nursery.start(_serve, node, listeners[index])
                    room.scopes.append(scope)
            try:
                yield room
            finally:
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(_close_lanes, room)
                nursery.cancel_scope.cancel()


def runtime_of(node: StageNode) -> ScriptedRuntime:
    """A node's scripted runtime."""
    assert isinstance(node.runtime, ScriptedRuntime)
    return node.runtime


async def _serve(
    node: StageNode,
    listener: socket.socket,
    *,
    task_status: trio.TaskStatus[trio.CancelScope],
) -> None:
    with trio.CancelScope() as scope, listener:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_lanes, node, listener)
            task_status.started(scope)


def _close_lanes(room: Room) -> None:
    for runtime in room.runtimes:
        runtime.gate.set()
    for transport in room.opened:
        transport.lane.close()


async def blocking(work: Callable[[], T]) -> T:
    """Run blocking work in a thread, as a lane's owner does."""
    return await trio.to_thread.run_sync(work)


async def becomes(is_so: Callable[[], bool], what: str) -> None:
    """Look until something is so; the room goes on meanwhile."""
    with trio.move_on_after(5.0) as scope:
        while not is_so():  # noqa: ASYNC110 - threads set no trio event
            await trio.sleep(0.005)
    assert not scope.cancelled_caught, f"not within 5 s: {what}"


@contextlib.asynccontextmanager
async def dialled(
    node: StageNode, *, purpose: str | None = None, run_key: bytes = RUN_KEY
) -> AsyncIterator[ReplyLink]:
    """A raw connection to a stage, after its ready word."""
    address = node.config.bind_addr
    connection = socket.create_connection((address.host, address.port), 5.0)
    try:
        prepare(connection, io_timeout_s=5.0)
        if purpose is not None:
            token = connection_token(run_key, purpose)
            send_buffers(connection, [encode_auth_preamble(token)])
        word = await blocking(lambda: connection.recv(4))
        assert word == encode_ready(), f"no ready word but {word!r}"
        yield ReplyLink(connection, node.index, peer_name=node.config.stage_id)
    finally:
        interrupt(connection)
        connection.close()


def wire_bytes(message: StageMessage) -> bytes:
    """A message as it travels."""
    return b"".join(bytes(part) for part in encode_message(message))
