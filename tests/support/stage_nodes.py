"""Nodes with a stage side: plans, loads and claims of a small model, and fakes."""

from __future__ import annotations

import contextlib
import functools
import socket
import sqlite3
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.coordination.admission import (
    descriptor_text,
    package_ref,
    stage_descriptor,
)
from skippyd.coordination.fence_store import FenceStore
from skippyd.coordination.inventory import Inventory
from skippyd.coordination.model_digests import ModelDigests
from skippyd.coordination.node_budget import NodeBudget
from skippyd.coordination.ports import StageEndpoint, StageRunSettings
from skippyd.coordination.stage_parts import StageParts
from skippyd.coordination.stage_processes import (
    StageGone,
    StageHealth,
    StageLaunch,
    StageListening,
    StageNews,
    StageSpawnError,
)
from skippyd.coordination.stage_side import NodeStages
from skippyd.core.coordinator.claim import ClaimEpoch, ClaimKey, CoordinatorClaim
from skippyd.core.coordinator.instant import MAX_LEASE_MS, Instant
from skippyd.core.coordinator.messages import (
    ClaimCoordinator,
    LoadFailed,
    LoadStage,
    Origin,
    Reply,
    Request,
    StageKey,
    StageState,
    StopStage,
)
from skippyd.ids import (
    CoordinatorId,
    ModelId,
    NodeId,
    RunId,
    StageId,
    Term,
    TopologyId,
    UnixMs,
)
from skippyd.model.gguf_model import open_model
from skippyd.model.identity import model_sha256
from skippyd.runtime.build import BuildFacts
from support.random_models import RandomModel, write_random_model


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

HOST = "127.0.0.1"
SOME_BUILD = BuildFacts(
    llama_cpp_build="llama.cpp test", cpu_features="AVX2", capture="native"
)
GIB_16 = NodeBudget(
    memory_bytes=16 * 2**30, max_memory_bytes=None, headroom_bytes=2 * 2**30
)


def virtual_instant() -> Instant:
    """Both clocks by trio's own, which tests can hasten."""
    ms = int(trio.current_time() * 1000)
    return Instant(UnixMs(1_700_000_000_000 + ms), 1_000_000 + ms)


@attrs.frozen(kw_only=True)
class Plan:
    """A small model and its split, as a coordinator would send it out.

    Args:
        path: The model.
        model_id: What it is called.
        bounds: Layer bounds of the stages.
        build: What computes on the coordinator.
    """

    path: Path
    model_id: str = "org/model"
    bounds: tuple[int, ...] = (0, 3, 6)
    build: BuildFacts = SOME_BUILD
    run_key: str = "5a" * 32
    ports: tuple[int, ...] = ()
    node_ids: tuple[str, ...] = ("node-0", "node-1", "node-2")
    host: str = HOST

    @property
    def sha256(self) -> str:
        return _sha256_of(self.path)

    @property
    def key(self) -> ClaimKey:
        return ClaimKey(
            model_id=ModelId(self.model_id),
            package_ref=package_ref(self.sha256),
            manifest_sha256=self.sha256,
        )

    def settings(self) -> StageRunSettings:
        ports = self.ports or (0,) * (len(self.bounds) - 1)
        return StageRunSettings(
            model_sha256=self.sha256,
            model_id=self.model_id,
            ctx_size=256,
            lane_count=2,
            run_key=self.run_key,
            serves_openai=True,
            stages=tuple(
                StageEndpoint(
                    stage_id=f"stage-{index}",
                    stage_index=index,
                    node_id=NodeId(self.node_ids[index]),
                    layer_start=self.bounds[index],
                    layer_end=self.bounds[index + 1],
                    host=self.host,
                    port=port,
                )
                for index, port in enumerate(ports)
            ),
        )

    def claim(self, term: int) -> CoordinatorClaim:
        run = f"run-{term}"
        now = virtual_instant()
        return CoordinatorClaim(
            epoch=ClaimEpoch(
                key=self.key,
                topology_id=TopologyId(f"topology-{run}"),
                run_id=RunId(run),
                coordinator_id=CoordinatorId("node-0"),
                participant_set_hash="participants",
                topology_hash="topology",
            ),
            term=Term(term),
            lease_until_unix_ms=UnixMs(now.unix_ms + MAX_LEASE_MS),
        )

    def load(self, term: int, index: int) -> LoadStage:
        model = open_model(self.path)
        start, end = self.bounds[index], self.bounds[index + 1]
        descriptor = stage_descriptor(model, start, end, self.settings(), self.build)
        return LoadStage(
            key=self.key,
            stage=StageKey(
                topology_id=TopologyId(f"topology-run-{term}"),
                run_id=RunId(f"run-{term}"),
                stage_id=StageId(f"stage-{index}"),
            ),
            coordinator_term=Term(term),
            coordinator_id=CoordinatorId("node-0"),
            participant_set_hash="participants",
            topology_hash="topology",
            shutdown_generation=1,
            stage_index=index,
            layer_start=start,
            layer_end=end,
            source_model_sha256=self.sha256,
            source_model_bytes=self.path.stat().st_size,
            admission=descriptor_text(descriptor),
        )


@functools.cache
def _sha256_of(path: Path) -> str:
    return model_sha256(open_model(path))


def small_plan(folder: Path, *, with_tokenizer: bool = False) -> Plan:
    """Write a small model and split it in two."""
    folder.mkdir(exist_ok=True)
    spec = RandomModel(with_tokenizer=with_tokenizer)
    return Plan(path=write_random_model(folder / "small.gguf", spec))


def small_settings() -> StageRunSettings:
    """Settings of no model in particular."""
    return StageRunSettings(
        model_sha256="ab" * 32, model_id="org/model", ctx_size=256, lane_count=2
    )


@attrs.define(eq=False)
class FakeChild:
    """A stage process that does what the test says."""

    pid: int
    launch: StageLaunch
    tell: Callable[[StageNews], None]
    is_obedient: bool = True
    orders: list[str] = attrs.Factory(list)

    def ask_health(self) -> None:
        self.orders.append("health")
        self.tell(StageHealth("ok"))

    def terminate(self, grace_s: float) -> None:
        self.orders.append("terminate")
        if self.is_obedient:
            self.tell(StageGone("it was asked to stop"))

    def kill(self) -> None:
        self.orders.append("kill")
        if self.is_obedient:
            self.tell(StageGone("it was killed"))

    def serve(self, url: str | None = None) -> None:
        """Say that the layers are loaded."""
        self.tell(StageListening(openai_base_url=url))


def fake_child() -> FakeChild:
    """A child that nobody listens to."""
    with socket.socket() as listener:
        launch = StageLaunch(name="stage-1", documents={}, listener=listener)
        return FakeChild(1000, launch, lambda _news: None)


@attrs.define(eq=False)
class FakeSupervisor:
    """Starts nothing; `serves_at_once` makes each child ready as soon as it starts."""

    host: str = HOST
    children: list[FakeChild] = attrs.Factory(list)
    serves_at_once: bool = False
    is_obedient: bool = True
    failure: str = ""
    spawned: trio.Event = attrs.Factory(trio.Event)

    def listen(self, port: int = 0) -> socket.socket:
        listener = socket.create_server((self.host, port))
        listener.listen()
        return listener

    def spawn(
        self, launch: StageLaunch, tell: Callable[[StageNews], None]
    ) -> FakeChild:
        if self.failure:
            raise StageSpawnError(self.failure)
        child = FakeChild(1000 + len(self.children), launch, tell, self.is_obedient)
        self.children.append(child)
        if self.serves_at_once:
            trio.lowlevel.current_trio_token().run_sync_soon(child.serve)
        self.spawned.set()
        return child

    async def next_child(self) -> FakeChild:
        """Wait for the next start."""
        await self.spawned.wait()
        self.spawned = trio.Event()
        return self.children[-1]


@attrs.define(eq=False, kw_only=True)
class StageNode:
    """A node under test."""

    stages: NodeStages
    supervisor: FakeSupervisor
    inventory: Inventory
    plan: Plan

    async def ask(
        self,
        request: Request,
        *,
        origin: Origin = Origin.NETWORK,
        plan: Plan | None = None,
    ) -> Reply:
        settings = (plan or self.plan).settings()
        return await self.stages.request(request, origin=origin, settings=settings)

    async def claim(self, term: int) -> Reply:
        return await self.ask(ClaimCoordinator(self.plan.claim(term)))

    async def serve(self, term: int, index: int = 1) -> Reply:
        """Claim and load, with a child that serves at once."""
        await self.claim(term)
        self.supervisor.serves_at_once = True
        try:
            return await self.ask(self.plan.load(term, index))
        finally:
            self.supervisor.serves_at_once = False

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for reports until something is so."""
        while not is_so():
            await self.stages.changed().wait()

    async def rest(self) -> None:
        """Wait until everything said so far is taken in."""
        await self.stages.request(
            ClaimCoordinator(attrs.evolve(self.plan.claim(1), term=Term(0))),
            origin=Origin.NETWORK,
        )


@contextlib.asynccontextmanager
async def stage_node(
    folder: Path,
    plan: Plan,
    *,
    node_id: str = "node-1",
    supervisor: FakeSupervisor | None = None,
    is_known_identity: bool = False,
    reach: Callable[[str], None] = lambda _name: None,
    models: tuple[Path, ...] | None = None,
    clock: Callable[[], Instant] = virtual_instant,
) -> AsyncIterator[StageNode]:
    """Run a node whose processes are fakes, on a real store and real models."""
    await trio.Path(folder).mkdir(exist_ok=True)
    supervisor = supervisor or FakeSupervisor()
    inventory = Inventory(
        (plan.path.parent,) if models is None else models,
        ModelDigests(folder / "model-digests.json"),
    )
    with FenceStore.open(
        folder, is_known_identity=is_known_identity, reach=reach
    ) as store:
        stages = NodeStages(
            node_id=NodeId(node_id),
            name=node_id,
            store=store,
            supervisor=supervisor,
            inventory=inventory,
            parts=StageParts(inventory, lambda: SOME_BUILD),
            clock=clock,
            budget=lambda: GIB_16,
            reach=reach,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(inventory.run)
            await nursery.start(stages.run)
            yield StageNode(
                stages=stages, supervisor=supervisor, inventory=inventory, plan=plan
            )
            nursery.cancel_scope.cancel()


def stop_of(load: LoadStage) -> StopStage:
    """The stop that belongs to a load."""
    return StopStage(
        key=load.key,
        stage=load.stage,
        coordinator_term=load.coordinator_term,
        shutdown_generation=load.shutdown_generation,
    )


def stored_term(folder: Path) -> int:
    """The highest term that lies on a node's disk."""
    connection = sqlite3.connect(f"file:{folder}/fence.sqlite3?mode=ro", uri=True)
    (term,) = connection.execute("SELECT coalesce(max(term), 0) FROM fence").fetchone()
    connection.close()
    return int(term)


def states(node: StageNode) -> list[StageState]:
    """The states of a node's stages, as it reports them."""
    return [stage.status.state for stage in node.stages.report().stages]


def refusal(reply: Reply) -> str:
    """Why a load was refused."""
    assert isinstance(reply, LoadFailed)
    return reply.refusal.text
