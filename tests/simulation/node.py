"""One simulated node: the real stage control, and a shell that does what it says.

The shell performs effects in their order, as the daemon does: a record is durable
before the next effect begins. A crash may come between any two of them (a torn
batch), and between the writing of a record and its sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import attrs

from simulation.occurrences import (
    Deferred,
    Delivery,
    NodeWake,
    PreparationDone,
    ProcessReaped,
    ProcessStarted,
    Restart,
)
from simulation.plans import LOCAL_RUN
from simulation.verdicts import check_answer, check_shutdown
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
from skippyd.core.coordinator.memory import (
    FenceRecord,
    PersistFence,
    PersistQuarantine,
)
from skippyd.core.coordinator.messages import (
    ClaimCoordinator,
    LoadStage,
    Origin,
    PreparationState,
    StageState,
    StageStatus,
)


if TYPE_CHECKING:
    from simulation.clocks import NodeClocks
    from simulation.ghost import GhostProcess, NodeGhost
    from simulation.occurrences import Occurrence
    from simulation.store import SimulatedStore
    from simulation.world import World
    from skippyd.core.coordinator.instant import Instant
    from skippyd.ids import NodeId


@attrs.define(eq=False)
class OpenRequest:
    """A request that is not answered yet, and the clocks when it came in."""

    delivery: Delivery
    received_at: Instant


@attrs.define(eq=False, kw_only=True)
class Node:
    """A node; `control` is None while its daemon is down."""

    world: World
    index: int
    node_id: NodeId
    clocks: NodeClocks
    store: SimulatedStore
    ghost: NodeGhost
    control: StageControl | None = None
    incarnation: int = 0
    paused_until_ms: int = 0
    clogged_until_ms: int = 0
    _tear_after: int | None = None
    _tear_down_ms: int = 0
    _is_torn: bool = False
    now: Instant = attrs.field(init=False)
    open_requests: dict[int, OpenRequest] = attrs.field(factory=dict)
    _next_request_id: int = 0
    _wake_at_ms: int | None = None

    def __attrs_post_init__(self) -> None:
        self.now = self.clocks.read(0)
        self.start()

    def start(self) -> None:
        """Start the daemon on what the disk holds."""
        self.incarnation += 1
        self._wake_at_ms = None
        self.now = self.clocks.read(self.world.now_ms)
        self.control = StageControl(ClaimFence.restore(self.store.snapshot(), self.now))
        self.ghost.daemon_started(self.now)
        self._set_timer(self.control)

    def crash(self, down_ms: int, *, forgets: bool = False) -> None:
        """End the daemon and with it every stage; come back later."""
        if self.control is None:
            return
        self.world.touch(self)
        self.control = None
        self.open_requests.clear()
        self.disarm()
        self.store.crash()
        if forgets:
            self.store.lose(f"{self.node_id}-{self.incarnation}")
        self.ghost.restarted(forgot=forgets)
        self.world.node_crashed(self)
        self.world.schedule(down_ms, Restart(self))

    def deliver(self, delivery: Delivery) -> None:
        """Take a request in."""
        if not self.is_running(delivery):
            return
        self._next_request_id = request_id = self._next_request_id + 1
        self.now = self.clocks.read(self.world.now_ms)
        self.open_requests[request_id] = OpenRequest(delivery, self.now)
        received = Received(
            request_id=request_id, request=delivery.request, origin=delivery.origin
        )
        self.offer(received, delivery)

    def is_running(self, occurrence: Occurrence) -> bool:
        """Say whether the daemon takes events; a paused one takes them later."""
        if self.control is None:
            return False
        pause_ms = self.paused_until_ms - self.world.now_ms
        if pause_ms > 0:
            self.world.schedule(pause_ms, Deferred(self, occurrence))
            return False
        return True

    def offer(self, event: ControlEvent, cause: Occurrence) -> None:
        """Feed the control and perform what it wants."""
        control = self.control
        if control is None:
            return
        self.world.touch(self)
        for effect in self._torn(control.offer(event, self.now)):
            self._perform(effect, cause)
        if self._is_torn:
            self.crash(self._tear_down_ms)
        else:
            self._set_timer(control)

    def arm_tear(self, effect_count: int, down_ms: int) -> None:
        """Crash in the next batch that writes, after so many of its effects."""
        self._tear_after, self._tear_down_ms = effect_count, down_ms

    def disarm(self) -> None:
        """Forget about an armed crash."""
        self._tear_after, self._is_torn = None, False

    def kill_stage(self) -> None:
        """A stage's process dies by itself."""
        for process in self.ghost.processes:
            self.world.schedule(1, ProcessReaped(self, self.incarnation, process))

    def _torn(self, effects: tuple[ControlEffect, ...]) -> tuple[ControlEffect, ...]:
        """Cut a batch that writes where an armed crash wants it."""
        if self._tear_after is None or not any(
            isinstance(effect, PersistFence) for effect in effects
        ):
            return effects
        kept = effects[: self._tear_after]
        if not kept and isinstance(effects[0], PersistFence):
            self.store.write(effects[0].record)
        self._is_torn = True
        return kept

    def _perform(self, effect: ControlEffect, cause: Occurrence) -> None:
        match effect:
            case Answer():
                self._answer(effect)
            case PersistFence(record):
                self._persist(record)
            case StartStage(load):
                self._start_stage(load, cause)
            case ShutDownStage(load):
                self._shut_down(load, cause)
            case StartPreparation(load):
                duration_ms = self.world.draw_preparation_ms()
                done = PreparationDone(self, self.incarnation, load)
                self.world.schedule(duration_ms, done)
            case CancelPreparation():
                # The late report about it must change nothing.
                self.world.preparation_cancelled()
            case PersistQuarantine():
                self.store.is_quarantined = False
            case _:
                assert_never(effect)

    def _answer(self, effect: Answer) -> None:
        # A KeyError here is a request answered twice, which no shell could do.
        opened = self.open_requests.pop(effect.request_id)
        check_answer(self, opened, effect.reply)
        self.world.send_reply(self, opened.delivery, effect.reply)

    def _persist(self, record: FenceRecord) -> None:
        before = self.store.durable.get(record.key)
        self.store.write(record)
        self.store.sync()
        is_new = before is None or before.claim != record.claim
        if record.claim is not None and is_new:
            self.ghost.claim_became_durable(record.claim, self.now)

    def _start_stage(self, load: LoadStage, cause: Occurrence) -> None:
        if isinstance(cause, Delivery):
            is_local = cause.origin is Origin.ADMIN
        else:
            is_local = load.stage.run_id.startswith(LOCAL_RUN)
        process = self.ghost.started(load, self.now, is_local)
        duration_ms, fails = self.world.draw_load()
        done = ProcessReaped if fails else ProcessStarted
        self.world.schedule(duration_ms, done(self, self.incarnation, process))

    def _shut_down(self, load: LoadStage, cause: Occurrence) -> None:
        for process in self.ghost.processes:
            if process.load == load and not process.is_ending:
                check_shutdown(self, process, cause)
                process.is_ending = True
                is_fenced = isinstance(cause, Delivery) and isinstance(
                    cause.request, ClaimCoordinator
                )
                if is_fenced:
                    self.world.stage_gone(self, load, is_fenced=True)
                reaped = ProcessReaped(self, self.incarnation, process)
                self.world.schedule(self.world.draw_reaping_ms(), reaped)

    def process_started(self, occurrence: ProcessStarted) -> None:
        """A stage's process answers its readiness probe."""
        process = occurrence.process
        if process not in self.ghost.processes or process.is_ending:
            return
        self.now = self.clocks.read(self.world.now_ms)
        status = self._status(process.load)
        self.offer(StageBecameReady(process.load, status), occurrence)
        if process in self.ghost.processes and not process.is_ending:
            self.ghost.became_ready(process, self.now)

    def process_reaped(self, occurrence: ProcessReaped) -> None:
        """A stage's process is gone and its memory free."""
        process = occurrence.process
        if process not in self.ghost.processes:
            return
        self.now = self.clocks.read(self.world.now_ms)
        self.ghost.ended(process)
        if not process.is_ending:
            self.world.stage_gone(self, process.load, is_fenced=False)
        self.offer(StageEnded(process.load, "the process ended"), occurrence)

    def preparation_done(self, occurrence: PreparationDone) -> None:
        """A preparation has fetched everything."""
        self.now = self.clocks.read(self.world.now_ms)
        moved = PreparationMoved(load=occurrence.load, state=PreparationState.READY)
        self.offer(moved, occurrence)

    def wake(self, occurrence: NodeWake) -> None:
        """A deadline of the control is reached, unless it has moved since."""
        if self._wake_at_ms is None or self.world.now_ms < self._wake_at_ms:
            self.world.event_count -= 1
            return
        self._wake_at_ms = None
        self.now = self.clocks.read(self.world.now_ms)
        self.offer(TimePassed(), occurrence)

    def fence(self) -> ClaimFence:
        """Return the memory of a node that is up."""
        assert self.control is not None
        return self.control.fence

    def check(self) -> None:
        """Check this node's invariants; after every event that touched it."""
        self.ghost.check(self.store.durable_term)

    def live_process(self, term: int, run_id: str) -> GhostProcess | None:
        """Return the process that answers frames of a run, ending or not."""
        for process in self.ghost.processes:
            load = process.load
            if (
                process.is_ready
                and load.coordinator_term == term
                and load.stage.run_id == run_id
            ):
                return process
        return None

    def _set_timer(self, control: StageControl) -> None:
        deadline = control.next_deadline()
        if deadline is None:
            return
        at_ms = max(self.clocks.true_ms_of(deadline), self.world.now_ms + 1)
        if self._wake_at_ms is None or at_ms < self._wake_at_ms:
            self._wake_at_ms = at_ms
            wake = NodeWake(self, self.incarnation)
            self.world.schedule(at_ms - self.world.now_ms, wake)

    def _status(self, load: LoadStage) -> StageStatus:
        return StageStatus(
            key=load.key,
            stage=load.stage,
            state=StageState.READY,
            coordinator_term=load.coordinator_term,
            coordinator_id=load.coordinator_id,
            shutdown_generation=load.shutdown_generation,
            stage_index=load.stage_index,
            layer_start=load.layer_start,
            layer_end=load.layer_end,
            backend=load.backend,
            source_model_sha256=load.source_model_sha256,
            source_model_bytes=load.source_model_bytes,
            source_model_path=None,
            bind_addr="127.0.0.1:4100",
            admission=self.world.echo(load.admission),
        )
