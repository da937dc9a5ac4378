"""A stage side in memory: the real rules, processes that are only waits of trio's clock."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, TypeVar, assert_never

import attrs
import trio

from skippyd.coordination.ports import (
    FEATURES,
    GENERATION,
    ModelEntry,
    NodeReport,
    StageReport,
)
from skippyd.core.coordinator.control import StageControl
from skippyd.core.coordinator.control_effects import (
    Answer,
    CancelPreparation,
    ControlEffect,
    ControlEvent,
    PreparationMoved,
    Received,
    ShutDownStage,
    StageBecameReady,
    StageEnded,
    StartPreparation,
    StartStage,
    TimePassed,
)
from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.memory import PersistFence, PersistQuarantine
from skippyd.core.coordinator.messages import PreparationState, StageState
from skippyd.errors import SkippyError
from support.claims import KEY, ready_status
from support.cluster import Store


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.coordination.ports import StageRunSettings
    from skippyd.core.coordinator.instant import Instant
    from skippyd.core.coordinator.messages import LoadStage, Origin, Reply, Request
    from skippyd.ids import NodeId, RunId

T = TypeVar("T")

GIB = 1024**3


class DaemonDownError(SkippyError):
    """The daemon of this node does not run."""


@attrs.define(eq=False, kw_only=True)
class Paces:
    """How long things take on a node, in seconds."""

    prepare_s: float = 0.05
    load_s: float = 0.2
    reap_s: float = 0.05


@attrs.define(eq=False)
class Process:
    """A stage's process, as far as it is simulated."""

    load: LoadStage
    settings: StageRunSettings | None
    port: int
    is_ending: bool = False


@attrs.define(eq=False, kw_only=True)
class AsyncStageSide:
    """The stages of one node; implements `StageSide`.

    `chain_health` says what the canary of a first stage would find.
    """

    node_id: NodeId
    clock: Callable[[], Instant]
    chain_health: Callable[[LoadStage], str] = lambda _load: "ok"
    on_change: Callable[[], None] = lambda: None
    models: tuple[str, ...] = (KEY.manifest_sha256,)
    memory_bytes: int = 8 * GIB
    paces: Paces = attrs.Factory(Paces)
    store: Store = attrs.field(init=False)
    is_draining: bool = False
    stopped_runs: tuple[RunId, ...] = ()
    opens_something_else: bool = False
    processes: list[Process] = attrs.Factory(list)
    failed: dict[RunId, tuple[LoadStage, str]] = attrs.Factory(dict)
    seen: list[tuple[Request, StageRunSettings | None]] = attrs.Factory(list)
    control: StageControl | None = None
    nursery: trio.Nursery | None = None
    _scope: trio.CancelScope | None = None
    _open: dict[int, tuple[trio.Event, list[Reply]]] = attrs.Factory(dict)
    _numbers: itertools.count[int] = attrs.field(factory=itertools.count, init=False)
    _ports: itertools.count[int] = attrs.field(
        factory=lambda: itertools.count(19_000), init=False
    )
    _timer: trio.CancelScope | None = None
    _changed: trio.Event = attrs.Factory(trio.Event)
    _version: int = 0
    _cached: tuple[tuple[object, ...], NodeReport] | None = None

    def __attrs_post_init__(self) -> None:
        self.store = Store(instance_id=f"store of {self.node_id}")

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Be a daemon until cancelled or crashed; what is stored is restored."""
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as self.nursery:
                fence = ClaimFence.restore(self.store.snapshot(), self.clock())
                self.control = StageControl(fence)
                self._touch()
                task_status.started()
                await trio.sleep_forever()

    def crash(self) -> None:
        """End the daemon at once, its processes with it."""
        self.control = None
        self.processes.clear()
        self.failed.clear()
        for answered, _ in self._open.values():
            answered.set()
        self._open.clear()
        if self._scope is not None:
            self._scope.cancel()
        self._touch()

    async def request(
        self,
        request: Request,
        *,
        origin: Origin,
        settings: StageRunSettings | None = None,
    ) -> Reply:
        """See `StageSide`."""
        if self.control is None:
            raise DaemonDownError(f"{self.node_id} is down")
        self.seen.append((request, settings))
        number = next(self._numbers)
        answered, replies = self._open[number] = (trio.Event(), [])
        received = Received(request_id=number, request=request, origin=origin)
        self._offer(received, settings)
        await answered.wait()
        if not replies:
            raise DaemonDownError(f"{self.node_id} went down")
        return replies[0]

    def report(self) -> NodeReport:
        """See `StageSide`; made anew only when something changed."""
        health = self._health()
        fresh = (
            *(self._version, health, self.is_draining, self.stopped_runs),
            self.memory_bytes,
        )
        if self._cached is None or self._cached[0] != fresh:
            self._cached = (fresh, self._made_report(health))
        return self._cached[1]

    def _health(self) -> str | None:
        for process in self.processes:
            if process.load.stage_index == 0 and self.serves(process.load.stage.run_id):
                return self.chain_health(process.load)
        return None

    def _made_report(self, health: str | None) -> NodeReport:
        return NodeReport(
            node_id=self.node_id,
            name=f"name of {self.node_id}",
            version="0",
            generation=GENERATION,
            features=FEATURES,
            instance_id=self.store.instance_id,
            memory_bytes=self.memory_bytes,
            max_memory_bytes=None,
            headroom_bytes=0,
            stage_host="127.0.0.1",
            models=tuple(
                ModelEntry(name=sha, path=f"/{sha}", bytes=1, sha256=sha)
                for sha in self.models
            ),
            stages=tuple(self._stage_reports(health)),
            is_draining=self.is_draining,
            stopped_runs=self.stopped_runs,
        )

    def drain(self, *, is_over: bool = False) -> None:
        """Take no stages any more, or take them again; everybody is told."""
        self.is_draining = not is_over
        self._touch()

    def changed(self) -> trio.Event:
        """See `StageSide`."""
        return self._changed

    def kill_stage(self, detail: str = "killed by signal 9") -> None:
        """Let every stage process die by itself."""
        for process in list(self.processes):
            self.processes.remove(process)
            self.failed[process.load.stage.run_id] = (process.load, detail)
            self._offer(StageEnded(process.load, detail))

    def serves(self, run_id: RunId) -> bool:
        """Whether a ready stage of a run lives here."""
        if self.control is None:
            return False
        return any(
            stage.state is StageState.READY and stage.load.stage.run_id == run_id
            for stage in self.control.snapshot()
        )

    def _stage_reports(self, health: str | None) -> list[StageReport]:
        if self.control is None:
            return []
        reports = []
        for stage in self.control.snapshot():
            process = self._process_of(stage.load)
            is_first = stage.load.stage_index == 0
            is_ready = stage.state is StageState.READY
            reports.append(
                StageReport(
                    status=attrs.evolve(ready_status(stage.load), state=stage.state),
                    since_unix_ms=0,
                    openai_base_url=(
                        f"http://127.0.0.1:{process.port + 1_000}/v1"
                        if is_first and is_ready and process
                        else None
                    ),
                    health=health if is_first and is_ready else None,
                )
            )
        for load, detail in self.failed.values():
            status = attrs.evolve(ready_status(load), state=StageState.FAILED)
            reports.append(StageReport(status=status, since_unix_ms=0, reason=detail))
        return reports

    def _process_of(self, load: LoadStage) -> Process | None:
        return next((p for p in self.processes if p.load == load), None)

    def _offer(
        self, event: ControlEvent, settings: StageRunSettings | None = None
    ) -> None:
        if self.control is None:
            return
        for effect in self.control.offer(event, self.clock()):
            self._perform(effect, settings)
        self._set_timer()
        self._touch()

    def _perform(
        self, effect: ControlEffect, settings: StageRunSettings | None
    ) -> None:
        match effect:
            case Answer(request_id, reply):
                answered, replies = self._open.pop(request_id)
                replies.append(reply)
                answered.set()
            case PersistFence(record):
                self.store.records[record.key] = record
            case PersistQuarantine():
                self.store.is_quarantined = False
            case _:
                self._perform_about_stage(effect, settings)

    def _perform_about_stage(
        self,
        effect: StartStage | ShutDownStage | StartPreparation | CancelPreparation,
        settings: StageRunSettings | None,
    ) -> None:
        match effect:
            case StartStage(load):
                self.failed.pop(load.stage.run_id, None)
                process = Process(load, settings, next(self._ports))
                self.processes.append(process)
                self._later(self.paces.load_s, self._become_ready, process)
            case ShutDownStage(load):
                process_or_none = self._process_of(load)
                if process_or_none is not None and not process_or_none.is_ending:
                    process_or_none.is_ending = True
                    self._later(self.paces.reap_s, self._reap, process_or_none)
            case StartPreparation(load):
                self._later(self.paces.prepare_s, self._prepared, load)
            case CancelPreparation():
                pass
            case _:
                assert_never(effect)

    def _become_ready(self, process: Process) -> None:
        if process in self.processes and not process.is_ending:
            status = attrs.evolve(
                ready_status(process.load), bind_addr=f"127.0.0.1:{process.port}"
            )
            if self.opens_something_else:
                status = attrs.evolve(status, admission="something else")
            self._offer(StageBecameReady(process.load, status))

    def _reap(self, process: Process) -> None:
        if process in self.processes:
            self.processes.remove(process)
            self._offer(StageEnded(process.load, "asked to end"))

    def _prepared(self, load: LoadStage) -> None:
        moved = PreparationMoved(load=load, state=PreparationState.AVAILABLE)
        self._offer(moved)

    def _later(self, delay_s: float, action: Callable[[T], None], value: T) -> None:
        assert self.nursery is not None
        self.nursery.start_soon(_wait_and_do, delay_s, functools.partial(action, value))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.control is None or self.nursery is None:
            return
        deadline_ms = self.control.next_deadline()
        if deadline_ms is not None:
            delay_s = max(0, deadline_ms - self.clock().boottime_ms) / 1_000
            self._timer = trio.CancelScope()
            self.nursery.start_soon(self._wake, self._timer, delay_s)

    async def _wake(self, scope: trio.CancelScope, delay_s: float) -> None:
        with scope:
            await trio.sleep(delay_s)
            self._timer = None
            self._offer(TimePassed())

    def _touch(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = trio.Event()
        self.on_change()


async def _wait_and_do(delay_s: float, action: Callable[[], None]) -> None:
    await trio.sleep(delay_s)
    action()
