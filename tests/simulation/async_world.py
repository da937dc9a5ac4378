"""One seed of the real coordination on trio's virtual clock, with faults, then healed.

The rollouts, the failover, the route tables and the rules are the product's own; what
is drawn from the seed is the wire, the paces, the disk and what goes wrong. Trio's
scheduler draws from the seed too, so that a seed is a whole history.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

import attrs
import trio
import trio._core._run as trio_run
from trio.testing import MockClock

from simulation.ghost import InvariantBrokenError
from skippyd.core.coordinator.control_effects import ControlEffect, StartStage
from skippyd.core.coordinator.memory import PersistFence
from skippyd.errors import RefusedError, SkippyError
from skippyd.ids import NodeId
from support.async_cluster import MODEL, AsyncCluster, wish_of_model
from support.async_stage_side import AsyncStageSide


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.coordination.ports import Route, StageRunSettings

HEAL_S = 25.0
"""Every fault ends here."""

SERVED_WITHIN_S = 300.0
"""So long after healing one chain serves, that every node knows, and no other (L1)."""

LOOK_S = 5.0
DEPLOY_AGAIN_S = 4.0
HOME = NodeId("a")

DETERMINISTIC = "_ALLOW_DETERMINISTIC_SCHEDULING"
"""Trio's own hook, which pytest-trio and Hypothesis use too; a test looks for it."""


class AsyncFault(Enum):
    """What goes wrong at one moment."""

    ISOLATE = "isolate"
    CUT = "cut"
    CUT_ONE_WAY = "cut one way"
    CUT_CONTROL = "cut control"
    CRASH = "crash"
    STAGE_DEATH = "stage death"
    DISK_FULL = "disk full"
    MEND = "mend"


@attrs.frozen(kw_only=True)
class AsyncOutcome:
    """What a seed came to."""

    seed: int
    faults: tuple[str, ...]
    violation: str | None
    events: int
    digest: str
    served_after_s: float


class GhostStageSide(AsyncStageSide):
    """A stage side whose every effect is checked before it is performed."""

    watch: Callable[[AsyncStageSide, ControlEffect, StageRunSettings | None], None]

    def _perform(
        self, effect: ControlEffect, settings: StageRunSettings | None
    ) -> None:
        self.watch(self, effect, settings)
        super()._perform(effect, settings)


@attrs.define(eq=False)
class AsyncWorld:
    """One schedule under way."""

    rng: Random
    broken: list[InvariantBrokenError] = attrs.Factory(list)
    faults: list[str] = attrs.Factory(list)
    events: int = 0
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    served_after_s: float = 0.0
    _digest: object = attrs.field(factory=hashlib.sha256)
    _keys: dict[str, str] = attrs.Factory(dict)
    _down: set[NodeId] = attrs.Factory(set)

    async def run(self) -> None:
        """Start, deploy, let things go wrong, heal, and wait until all is well."""
        async with trio.open_nursery() as nursery:
            with self.scope:
                cluster = self._cluster(nursery)
                for name in list(cluster.nodes):
                    await cluster.start(name)
                nursery.start_soon(self._deploy, cluster)
                await self._trouble(cluster)
                await self._heal(cluster)
                await self._until_served(cluster)
            nursery.cancel_scope.cancel()

    def note(self, *words: object) -> None:
        """Make something a part of the history."""
        self.events += 1
        text = f"{trio.current_time():.6f} {' '.join(map(str, words))}\n"
        assert isinstance(self._digest, type(hashlib.sha256()))
        self._digest.update(text.encode())

    @property
    def digest(self) -> str:
        """Names the history."""
        assert isinstance(self._digest, type(hashlib.sha256()))
        return self._digest.hexdigest()

    # The world.

    def _cluster(self, nursery: trio.Nursery) -> AsyncCluster:
        rng = self.rng
        cluster = AsyncCluster(nursery, look_s=LOOK_S, stage_side=GhostStageSide)
        cluster.jitter = rng.random
        cluster.wire.rng = rng
        cluster.wire.loss = rng.choice((0.0, 0.0, 0.02, 0.15))
        cluster.wire.delay_s = rng.choice((0.001, 0.02, 0.2))
        cluster.fewest_stages = rng.choice((1, 2, 2))
        for name in ("a", "b", "c", "d")[: rng.choice((3, 3, 4))]:
            node = cluster.add(name)
            assert isinstance(node.stages, GhostStageSide)
            node.stages.watch = self._watch
            node.stages.paces.load_s = rng.choice((0.1, 1.0, 8.0))
            node.stages.paces.reap_s = rng.choice((0.01, 0.3, 7.0))
            node.stages.memory_bytes *= rng.choice((1, 2))
        return cluster

    async def _deploy(self, cluster: AsyncCluster) -> None:
        """An operator who says it again until it is taken."""
        while True:
            node = cluster.nodes[HOME]
            try:
                if node.is_up:
                    await node.rollouts.deploy(wish_of_model("a"))
                    return
            except RefusedError as error:
                self.note("refused", error)
                if "served already" in str(error):
                    return
            except SkippyError as error:
                self.note("not deployed", error)
            await trio.sleep(DEPLOY_AGAIN_S)

    async def _trouble(self, cluster: AsyncCluster) -> None:
        moments = sorted(
            self.rng.uniform(0.0, HEAL_S) for _ in range(self.rng.randrange(1, 6))
        )
        for moment in moments:
            await trio.sleep_until(moment)
            fault = self.rng.choice(list(AsyncFault))
            await self._happen(cluster, fault)
        await trio.sleep_until(HEAL_S)

    async def _happen(self, cluster: AsyncCluster, fault: AsyncFault) -> None:
        node_id, other = self.rng.sample(sorted(cluster.nodes), 2)
        self.faults.append(
            f"{trio.current_time():.2f} s: {fault.value} {node_id} {other}"
        )
        self.note(self.faults[-1])
        if fault is AsyncFault.CRASH:
            await self._crash(cluster, node_id)
        else:
            _cause(cluster, fault, node_id, other)

    async def _crash(self, cluster: AsyncCluster, node_id: NodeId) -> None:
        if node_id in self._down:
            return
        self._down.add(node_id)
        cluster.nodes[node_id].crash()
        if self.rng.random() < 0.5:
            await trio.sleep(self.rng.uniform(0.1, 3.0))
            await self._restart(cluster, node_id)

    async def _restart(self, cluster: AsyncCluster, node_id: NodeId) -> None:
        self._down.discard(node_id)
        await cluster.start(node_id)

    async def _heal(self, cluster: AsyncCluster) -> None:
        self.note("healed")
        cluster.heal()
        for node in cluster.nodes.values():
            node.memory.is_full = False
        for node_id in sorted(self._down):
            await self._restart(cluster, node_id)

    async def _until_served(self, cluster: AsyncCluster) -> None:
        healed_s = trio.current_time()
        while trio.current_time() - healed_s < SERVED_WITHIN_S:
            if self._is_served(cluster):
                self.served_after_s = trio.current_time() - healed_s
                return
            await trio.sleep(1)
        phases = {
            str(node.own_id): [
                (state.phase, state.last_report) for state in node.rollouts.states()
            ]
            for node in cluster.nodes.values()
        }
        self.break_("L1", f"nothing is served long after healing: {phases}")

    def _is_served(self, cluster: AsyncCluster) -> bool:
        routes: set[Route | None] = {
            node.routes.route_of(MODEL) for node in cluster.nodes.values()
        }
        if len(routes) != 1 or (route := routes.pop()) is None:
            return False
        strangers = [
            process
            for node in cluster.nodes.values()
            for process in node.stages.processes
            if process.load.stage.run_id != route.run_id
        ]
        return not strangers and cluster.is_whole(route.node_ids, route.run_id)

    # The ghost.

    def break_(self, name: str, text: str) -> None:
        """Report a broken invariant and end the schedule."""
        self.broken.append(InvariantBrokenError(name, text))
        self.scope.cancel()

    def _watch(
        self,
        stages: AsyncStageSide,
        effect: ControlEffect,
        settings: StageRunSettings | None,
    ) -> None:
        self.note(stages.node_id, type(effect).__name__)
        match effect:
            case PersistFence(record):
                before = stages.store.records.get(record.key)
                if before is not None and record.term < before.term:
                    self.break_("I2", f"{stages.node_id}: {before.term} fell")
            case StartStage():
                self._watch_start(stages, effect, settings)
            case _:
                pass

    def _watch_start(
        self,
        stages: AsyncStageSide,
        effect: StartStage,
        settings: StageRunSettings | None,
    ) -> None:
        load = effect.load
        record = stages.store.records.get(load.key)
        if record is None or record.term != load.coordinator_term:
            self.break_("I6", f"{stages.node_id} loads without a durable claim")
        if stages.processes:
            self.break_("I7", f"{stages.node_id} has two stages of one model")
        if settings is None:
            return
        run_id = load.stage.run_id
        if self._keys.setdefault(settings.run_key, run_id) != run_id:
            self.break_("K1", f"{run_id} has the key of another run")
        ports = [stage.port for stage in settings.stages[load.stage_index + 1 :]]
        if 0 in ports:
            self.break_("L0", f"{run_id} loads a stage before those after it")


def _cause(
    cluster: AsyncCluster, fault: AsyncFault, node_id: NodeId, other: NodeId
) -> None:
    """Let a fault happen that needs no time."""
    match fault:
        case AsyncFault.ISOLATE:
            cluster.isolate(node_id)
        case AsyncFault.CUT:
            cluster.cut(node_id, other)
        case AsyncFault.CUT_ONE_WAY:
            cluster.cut(node_id, other, is_one_way=True)
        case AsyncFault.CUT_CONTROL:
            cluster.cut_control(node_id)
        case AsyncFault.STAGE_DEATH:
            cluster.nodes[node_id].stages.kill_stage()
        case AsyncFault.DISK_FULL:
            cluster.nodes[node_id].memory.is_full = True
        case _:
            cluster.heal()


def run_async_seed(seed: int) -> AsyncOutcome:
    """Run one seed from start to healed."""
    setattr(trio_run, DETERMINISTIC, True)
    trio_run._r.seed(seed)
    world = AsyncWorld(Random(seed))
    trio.run(world.run, clock=MockClock(autojump_threshold=0))
    return AsyncOutcome(
        seed=seed,
        faults=tuple(world.faults),
        violation=str(world.broken[0]) if world.broken else None,
        events=world.events,
        digest=world.digest,
        served_after_s=world.served_after_s,
    )
