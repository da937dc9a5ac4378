"""This node's stages and fences, whoever asks: the shell around the rules' control.

Theory of operation. One task takes events in turn: requests, news of processes and of
preparations, and the passing of time. It offers each to `StageControl` and performs the
effects in their order; a record is durable before the next effect begins, so nothing
that depends on it has left the node when it dies. A store that fails ends the task, and
with it the daemon: memory and disk must not part.
"""

from __future__ import annotations

import itertools
import logging
import math
from typing import TYPE_CHECKING, assert_never

import attrs
import trio

from skippyd import __version__
from skippyd.coordination.node_budget import BudgetError
from skippyd.coordination.open_requests import OpenRequests
from skippyd.coordination.ports import FEATURES, GENERATION, NodeReport
from skippyd.coordination.stage_documents import chain_tls
from skippyd.coordination.stage_preparing import StagePreparing
from skippyd.coordination.stage_runs import StageRuns
from skippyd.core.coordinator.control import StageControl
from skippyd.core.coordinator.control_effects import (
    Answer,
    CancelPreparation,
    ControlEffect,
    ControlEvent,
    Received,
    ShutDownStage,
    StageEnded,
    StartPreparation,
    StartStage,
    TimePassed,
)
from skippyd.core.coordinator.fence import ClaimFence
from skippyd.core.coordinator.instant import MS_PER_S
from skippyd.core.coordinator.memory import PersistFence, PersistQuarantine
from skippyd.core.coordinator.messages import Origin, StopStage
from skippyd.core.coordinator.reasons import LoadRefusalReason
from skippyd.core.coordinator.verdict import LoadRefused
from skippyd.errors import RefusedError


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.coordination.fence_store import FenceStore
    from skippyd.coordination.inventory import Inventory
    from skippyd.coordination.node_budget import NodeBudget
    from skippyd.coordination.open_requests import OpenRequest
    from skippyd.coordination.ports import StageRunSettings
    from skippyd.coordination.stage_documents import ChainTrust
    from skippyd.coordination.stage_parts import StageParts
    from skippyd.coordination.stage_processes import StageSupervisor
    from skippyd.coordination.stage_run import StageRun
    from skippyd.core.coordinator.instant import Instant
    from skippyd.core.coordinator.messages import LoadStage, Reply, Request
    from skippyd.core.coordinator.stages import LiveStage
    from skippyd.ids import NodeId
    from skippyd.stage.span_outbox import SpanBatch

logger = logging.getLogger("skippyd.stages")

LONGEST_WAIT_SECONDS = 30.0
"""Trio's clock stops in suspend: deadlines are looked at again at least so often."""

POLL_SECONDS = 1.0
"""How often stage 0 is asked whether its chain is whole."""

MEASURE_EVERY_POLLS = 10
DRAINING = "this node is draining and takes no new stage"


@attrs.frozen
class _LiftQuarantine:
    """The operator vouches that nothing was forgotten."""

    done: trio.Event


@attrs.define(eq=False, kw_only=True)
class NodeStages:
    """The stage side of this node; `run` must be running.

    Args:
        node_id: This node.
        name: How people call it.
        store: The durable memory of its fence.
        supervisor: Starts stage processes; is running already.
        inventory: Its model files.
        parts: Opens them.
        clock: Reads both clocks.
        budget: Looks at the machine's memory; called in a thread.
        reach: Told the name of each fail point.
        safe_mode: Whether one request is answered at a time.
        build_date_ns: Bounds terms on a node whose clock is far behind.
        trust: For TLS between stages off loopback; None where plaintext is wanted.
        on_spans: Takes what stage processes have measured.
    """

    node_id: NodeId
    name: str
    store: FenceStore
    supervisor: StageSupervisor
    inventory: Inventory
    parts: StageParts
    clock: Callable[[], Instant]
    budget: Callable[[], NodeBudget]
    reach: Callable[[str], None] = lambda _name: None
    safe_mode: bool = False
    build_date_ns: int = 0
    trust: ChainTrust | None = None
    on_spans: Callable[[SpanBatch], None] = lambda _batch: None
    is_draining: bool = False
    _budget: NodeBudget = attrs.field(init=False)
    _control: StageControl = attrs.field(init=False)
    _runs: StageRuns = attrs.field(init=False)
    _preparing: StagePreparing = attrs.field(init=False)
    _open: OpenRequests = attrs.field(factory=OpenRequests, init=False)
    _events: trio.MemorySendChannel[ControlEvent | _LiftQuarantine] = attrs.field(
        init=False
    )
    _queue: trio.MemoryReceiveChannel[ControlEvent | _LiftQuarantine] = attrs.field(
        init=False
    )
    _disk: trio.CapacityLimiter = attrs.field(
        factory=lambda: trio.CapacityLimiter(1), init=False
    )
    _changed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _sequence: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        fence = ClaimFence.restore(
            self.store.snapshot(), self.clock(), self.build_date_ns
        )
        self._control = StageControl(fence)
        self._budget = self.budget()
        # No bound is needed: requests are bounded, and each process says few things.
        self._events, self._queue = trio.open_memory_channel(math.inf)
        self._runs = StageRuns(
            supervisor=self.supervisor,
            parts=self.parts,
            clock=self.clock,
            offer=self._events.send_nowait,
            reload=self._reload,
            on_change=self._touch,
            reach=self.reach,
            one_at_a_time=self.safe_mode,
            trust=self.trust,
            on_spans=self.on_spans,
        )
        self._preparing = StagePreparing(
            parts=self.parts, offer=self._events.send_nowait
        )
        self.inventory.on_change = self._touch

    @property
    def fence(self) -> ClaimFence:
        """The claim memory, to be looked at: claims and leases for operators."""
        return self._control.fence

    @property
    def quarantine_reason(self) -> str | None:
        """Why this node does not vote, or None when it does."""
        return self.store.quarantine_reason

    def live_stages(self) -> tuple[LiveStage, ...]:
        """What the rules say about each live stage."""
        return self._control.snapshot()

    def stage_runs(self) -> tuple[StageRun, ...]:
        """Every stage with its process and what that counts, to be looked at."""
        return self._runs.runs()

    async def check_store(self) -> None:
        """Ask the fence store something, as a watchdog does.

        Raises:
            FenceStoreError: It does not answer.
        """
        await trio.to_thread.run_sync(self.store.check, limiter=self._disk)

    async def request(
        self,
        request: Request,
        *,
        origin: Origin,
        settings: StageRunSettings | None = None,
    ) -> Reply:
        """Do what a request asks; the fence is durable before the reply returns.

        Raises:
            StageSideBusyError: Too many requests are open.
            StageSideClosedError: The daemon is stopping.
        """
        self._open.check_room()
        if origin is Origin.ADMIN and isinstance(request, StopStage):
            self._runs.stopped.append(request.stage.run_id)
        return await self._receive(request, origin, settings).reply()

    def report(self) -> NodeReport:
        """This node now; cheap, no I/O."""
        return NodeReport(
            node_id=self.node_id,
            name=self.name,
            version=__version__,
            generation=GENERATION,
            features=FEATURES,
            instance_id=self.fence.instance_id,
            memory_bytes=self._budget.memory_bytes,
            max_memory_bytes=self._budget.max_memory_bytes,
            headroom_bytes=self._budget.headroom_bytes,
            stage_host=self.supervisor.host,
            models=self.inventory.entries(),
            stages=self._runs.reports(),
            is_draining=self.is_draining,
            safe_mode=self.safe_mode,
            sequence=self._sequence,
            stopped_runs=tuple(self._runs.stopped),
        )

    def changed(self) -> trio.Event:
        """An event that is set when the report changes; a new one each time."""
        return self._changed

    def begin_drain(self) -> None:
        """Take no new stages; those that run go on."""
        self.is_draining = True
        self._touch()

    def end_drain(self) -> None:
        """Take new stages again."""
        self.is_draining = False
        self._touch()

    async def lift_quarantine(self) -> None:
        """Vote again at once: the operator vouches that nothing was forgotten."""
        lift = _LiftQuarantine(trio.Event())
        self._events.send_nowait(lift)
        await lift.done.wait()

    async def stop_all(self, grace_s: float) -> None:
        """End every stage process, kindly first; returns when each is reaped."""
        self.begin_drain()
        await self._runs.stop_all(grace_s)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Take events until cancelled.

        Raises:
            FenceStoreError: A record did not become durable; the daemon must end.
        """
        try:
            async with trio.open_nursery() as nursery:
                self._runs.nursery = self._preparing.nursery = nursery
                nursery.start_soon(self._poll)
                task_status.started()
                while True:
                    await self._take(await self._next_event())
        finally:
            self._close()

    async def _next_event(self) -> ControlEvent | _LiftQuarantine:
        while True:
            wait_s = LONGEST_WAIT_SECONDS
            deadline_ms = self._control.next_deadline()
            if deadline_ms is not None:
                left_ms = deadline_ms - self.clock().boottime_ms
                if left_ms <= 0:
                    return TimePassed()
                wait_s = min(wait_s, left_ms / MS_PER_S)
            with trio.move_on_after(wait_s if deadline_ms is not None else math.inf):
                return await self._queue.receive()

    async def _take(self, event: ControlEvent | _LiftQuarantine) -> None:
        if isinstance(event, _LiftQuarantine):
            for lifted in self.fence.lift_quarantine():
                await self._perform(lifted, event)
            event.done.set()
            self._touch()
            return
        now = self.clock()
        for effect in self._control.offer(event, now):
            await self._perform(effect, event)
        self._runs.follow(self._control.snapshot())
        if isinstance(event, StageEnded):
            self._runs.end(event.load, event.detail)
        elif isinstance(event, Received):
            self._runs.drop_failed(lambda run: self._is_obsolete(run, now))

    async def _perform(
        self, effect: ControlEffect, event: ControlEvent | _LiftQuarantine
    ) -> None:
        match effect:
            case PersistFence() | PersistQuarantine():
                await trio.to_thread.run_sync(
                    self.store.write, effect, limiter=self._disk
                )
            case Answer(request_id, reply):
                self._open.answer(request_id, reply)
            case StartStage(load):
                self._start(load)
            case ShutDownStage(load, reason):
                self._runs.shut_down(load, reason, is_fenced=self._is_fenced(load))
            case StartPreparation(load):
                self._prepare(load, event)
            case CancelPreparation(load):
                self._preparing.cancel(load)
            case _:
                assert_never(effect)

    def _receive(
        self, request: Request, origin: Origin, settings: StageRunSettings | None
    ) -> OpenRequest:
        opened = self._open.open(request, origin, settings)
        received = Received(
            request_id=opened.request_id, request=request, origin=origin
        )
        self._events.send_nowait(received)
        return opened

    def _start(self, load: LoadStage) -> None:
        # Whoever waits for this load is still there, and brought its settings.
        asked = self._open.asking_for(load)
        if (refusal := self._refusal()) is not None:
            self._events.send_nowait(StageEnded(load, refusal))
            return
        self._runs.start(load, asked.settings, asked.origin)

    def _prepare(self, load: LoadStage, event: ControlEvent | _LiftQuarantine) -> None:
        # Its answer is a later effect of the same event.
        assert isinstance(event, Received)
        settings = self._open.settings(event.request_id)
        refusal = self._refusal() or self._distrust(settings)
        self._preparing.start(load, settings, refusal)

    def _refusal(self) -> str | None:
        return DRAINING if self.is_draining else None

    def _distrust(self, settings: StageRunSettings | None) -> str | None:
        """Why stages of a run could not speak to each other, before it is loaded."""
        try:
            if settings is not None:
                chain_tls(settings, self.trust)
        except RefusedError as error:
            return str(error)
        return None

    def _is_fenced(self, load: LoadStage) -> bool:
        """Whether the stage's run is not the accepted one any more."""
        claim = self.fence.claim_of(load.key)
        return claim is not None and (claim.term, claim.epoch.run_id) != (
            load.coordinator_term,
            load.stage.run_id,
        )

    def _is_obsolete(self, run: StageRun, now: Instant) -> bool:
        """Whether a failed run is replaced or was stopped; a lost lease may return."""
        verdict = self.fence.check_load(run.load, run.origin, now)
        return isinstance(verdict, LoadRefused) and verdict.reason not in {
            LoadRefusalReason.EXPIRED_LEASE,
            LoadRefusalReason.LEASE_NOT_HELD,
        }

    async def _reload(self, run: StageRun) -> Reply:
        return await self._receive(run.load, run.origin, run.settings).reply()

    async def _poll(self) -> None:
        for count in itertools.count():
            self._runs.ask_health()
            if count % MEASURE_EVERY_POLLS == 0:
                await self._measure()
            await trio.sleep(POLL_SECONDS)

    async def _measure(self) -> None:
        if await self._runs.measure():
            # What stages hold is free again for the plan that replaces theirs.
            return
        try:
            self._budget = await trio.to_thread.run_sync(self.budget)
        except BudgetError as error:
            logger.warning("memory is not known: %s", error)

    def _touch(self) -> None:
        self._sequence += 1
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _close(self) -> None:
        self._runs.nursery = self._preparing.nursery = None
        self._open.close()
