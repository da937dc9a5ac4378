"""The stage processes of this node: from a load to its process, and what became of it.

Theory of operation. A run is STARTING, READY or STOPPING as the rules say, and FAILED
when its process ended unasked. What happens to a process is offered to the rules as an
event; only the rules decide what is done. A stage that was ready and died is loaded
again after a pause, by offering its load anew: so it starts only while its claim still
holds, and at most so many times.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from typing import TYPE_CHECKING, assert_never
from urllib.parse import urlsplit

import attrs
import trio

from skippyd.config.endpoints import Endpoint
from skippyd.coordination.model_digests import are_unchanged
from skippyd.coordination.stage_documents import StagePlace, stage_documents
from skippyd.coordination.stage_processes import (
    StageGone,
    StageHealth,
    StageLaunch,
    StageListening,
    StageLoading,
    StageNews,
)
from skippyd.coordination.stage_run import StageRun
from skippyd.core.coordinator.control_effects import StageBecameReady, StageEnded
from skippyd.core.coordinator.messages import LoadFailed, StageState
from skippyd.errors import SkippyError
from skippyd.stage.activity import StageActivity
from skippyd.stage.child_process import resident_bytes
from skippyd.stage.span_outbox import SpanBatch


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from skippyd.coordination.ports import StageReport, StageRunSettings
    from skippyd.coordination.stage_documents import ChainTrust
    from skippyd.coordination.stage_parts import StageParts
    from skippyd.coordination.stage_processes import StageSupervisor
    from skippyd.core.coordinator.instant import Instant
    from skippyd.core.coordinator.messages import LoadStage, Origin, Reply
    from skippyd.core.coordinator.stages import LiveStage
    from skippyd.ids import RunId

logger = logging.getLogger("skippyd.stages")

AFTER_KILL = "after-kill"
"""Fail point: a fenced process is reaped, its claim not yet answered."""

STOP_GRACE_SECONDS = 15.0
"""A stage that is asked to stop lets its answers finish for 10 s."""

RESTART_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""The pause before each restart of a stage in one run; then it stays down."""

SHARE_STEP = 0.05
"""News of loading is passed on in steps, not for each tensor."""

STOPPED_KEPT = 16

MAX_FAILED = 16
"""Ended runs that are still shown."""


@attrs.define(eq=False, kw_only=True)
class StageRuns:
    """All runs of this node.

    Args:
        supervisor: Starts processes.
        parts: Opens models.
        clock: Reads both clocks.
        offer: Hands an event to the rules.
        reload: Offers a load anew, and says what came of it.
        on_change: Called when a report has changed.
        reach: Told the name of each fail point.
        one_at_a_time: Safe mode: stage 0 answers one request at a time.
        trust: For TLS off loopback; None where plaintext is wanted.
        on_spans: Takes what stage processes have measured.
        stopped: Runs whose stage here the operator ended, the newest last.
    """

    supervisor: StageSupervisor
    parts: StageParts
    clock: Callable[[], Instant]
    offer: Callable[[StageBecameReady | StageEnded], None]
    reload: Callable[[StageRun], Awaitable[Reply | None]]
    on_change: Callable[[], None]
    reach: Callable[[str], None] = lambda _name: None
    one_at_a_time: bool = False
    trust: ChainTrust | None = None
    on_spans: Callable[[SpanBatch], None] = lambda _batch: None
    stopped: deque[RunId] = attrs.Factory(lambda: deque(maxlen=STOPPED_KEPT))
    nursery: trio.Nursery | None = None
    _runs: dict[LoadStage, StageRun] = attrs.Factory(dict)
    _ended: trio.Event = attrs.Factory(trio.Event)

    def runs(self) -> tuple[StageRun, ...]:
        """Every run, sorted by id and place."""
        runs = sorted(
            self._runs.values(),
            key=lambda run: (run.load.stage.run_id, run.load.stage_index),
        )
        return tuple(runs)

    def reports(self) -> tuple[StageReport, ...]:
        """What others and operators see of them."""
        return tuple(run.report() for run in self.runs())

    def running(self) -> tuple[StageRun, ...]:
        """Runs that have a process."""
        return tuple(run for run in self._runs.values() if run.child is not None)

    def start(
        self, load: LoadStage, settings: StageRunSettings | None, origin: Origin
    ) -> None:
        """Begin to start a process; what comes of it is offered to the rules."""
        if settings is None or self.nursery is None:
            self.offer(StageEnded(load, "the load came without its run settings"))
            return
        before = self._runs.pop(load, None)
        self._forget_model(load)
        run = StageRun(
            load=load,
            settings=settings,
            origin=origin,
            host=self.supervisor.host,
            since_unix_ms=self.clock().unix_ms,
        )
        if before is not None:
            run.restarts = before.restarts + 1
            run.port, run.openai_port = before.port, before.openai_port
        self._runs[load] = run
        self.on_change()
        self.nursery.start_soon(self._start, run)

    def shut_down(self, load: LoadStage, reason: str, *, is_fenced: bool) -> None:
        """End a run's process: at once when it is fenced, else kindly first."""
        run = self._runs.get(load)
        if run is None or run.is_ending:
            return
        run.is_ending, run.is_fenced = True, is_fenced
        run.move(StageState.STOPPING, reason, self.clock().unix_ms)
        self.on_change()
        if run.child is None:
            return
        if is_fenced:
            run.child.kill()
        else:
            run.child.terminate(STOP_GRACE_SECONDS)

    def follow(self, live: Iterable[LiveStage]) -> None:
        """Take over what the rules say about each live stage."""
        changed = False
        for stage in live:
            run = self._runs.get(stage.load)
            if run is None or run.is_ending:
                continue
            run.was_ready |= stage.state is StageState.READY
            changed |= run.move(stage.state, "", self.clock().unix_ms)
        if changed:
            self.on_change()

    def end(self, load: LoadStage, detail: str) -> None:
        """Take over that the rules know of an end; load it again if it was unasked."""
        run = self._runs.get(load)
        if run is None:
            return
        if run.is_ending:
            del self._runs[load]
        else:
            self._fail(run, detail)
        ended, self._ended = self._ended, trio.Event()
        ended.set()
        self.on_change()

    def _fail(self, run: StageRun, detail: str) -> None:
        run.openai_base_url = run.health = None
        is_to_be_tried = run.was_ready or run.restarts > 0
        if not is_to_be_tried or run.restarts >= len(RESTART_PAUSES_SECONDS):
            reason = f"{detail}\nnot restarted" if is_to_be_tried else detail
            run.move(StageState.FAILED, reason, self.clock().unix_ms)
            self._forget_oldest()
            return
        pause_s = RESTART_PAUSES_SECONDS[run.restarts]
        count = f"{run.restarts + 1} of {len(RESTART_PAUSES_SECONDS)}"
        reason = f"{detail}\nrestart {count} in {pause_s:g} s if its claim still holds"
        run.move(StageState.FAILED, reason, self.clock().unix_ms)
        logger.warning("%s failed: %s", run.load.stage.stage_id, reason)
        assert self.nursery is not None
        self.nursery.start_soon(self._restart, run, detail, pause_s)

    def drop_failed(self, is_obsolete: Callable[[StageRun], bool]) -> None:
        """Forget failed runs that nobody wants any more; they are not restarted."""
        for load, run in list(self._runs.items()):
            if run.state is StageState.FAILED and is_obsolete(run):
                del self._runs[load]
                self.on_change()

    async def stop_all(self, grace_s: float) -> None:
        """End every process, kindly first, and wait until each is reaped."""
        for run in self._active():
            if not run.is_ending:
                run.is_ending = True
                run.move(StageState.STOPPING, "daemon stops", self.clock().unix_ms)
                if run.child is not None:
                    run.child.terminate(grace_s)
        self.on_change()
        while self._active():
            await self._ended.wait()

    async def measure(self) -> bool:
        """Look at the memory of every process; say whether there is any."""
        running = self.running()
        for run in running:
            if run.child is not None:
                run.resident_bytes = await trio.to_thread.run_sync(
                    resident_bytes, run.child.pid
                )
        return bool(running)

    def _active(self) -> tuple[StageRun, ...]:
        """Runs that have a process, or will have one."""
        runs = self._runs.values()
        return tuple(run for run in runs if run.state is not StageState.FAILED)

    def ask_health(self) -> None:
        """Let every process that serves say how it is."""
        for run in self._runs.values():
            if run.child is not None and run.was_ready:
                if run.asked_ms is None:
                    run.asked_ms = self.clock().boottime_ms
                run.child.ask_health()

    async def _start(self, run: StageRun) -> None:
        try:
            part = await self.parts.open(run.load, run.settings)
            threads = await trio.to_thread.run_sync(_threads_of, run)
            if run.is_ending:
                self.offer(StageEnded(run.load, run.reason))
                return
            run.part = part
            self._spawn(run, threads)
        except SkippyError as error:
            self.offer(StageEnded(run.load, str(error)))
            return
        self.on_change()
        with trio.move_on_after(run.start_limit_s):
            await run.settled.wait()
        if run.child is not None and not run.settled.is_set():
            run.is_overdue = True
            run.child.kill()

    def _spawn(self, run: StageRun, threads: int | None) -> None:
        assert run.part is not None
        with self.supervisor.listen(run.port) as listener:
            run.port = listener.getsockname()[1]
            place = StagePlace(
                model_path=run.part.path,
                host=run.host,
                port=run.port,
                n_threads=threads,
                trust=self.trust,
            )
            launch = StageLaunch(
                name=run.load.stage.stage_id,
                documents=stage_documents(run.load, run.settings, place),
                arguments=self._arguments(run),
                listener=listener,
            )
            run.child = self.supervisor.spawn(
                launch, functools.partial(self._hear, run)
            )

    def _arguments(self, run: StageRun) -> tuple[str, ...]:
        if run.load.stage_index != 0 or not run.settings.serves_openai:
            return ()
        arguments = ["--openai-bind-addr", str(Endpoint(run.host, run.openai_port))]
        if self.one_at_a_time:
            arguments += ["--openai-generation-concurrency", "1"]
        return tuple(arguments)

    def _hear(self, run: StageRun, news: StageNews) -> None:
        match news:
            case StageLoading():
                self._hear_loading(run, news)
            case StageListening():
                self._confirm(run, news)
            case StageActivity():
                run.activity = news
            case SpanBatch():
                self.on_spans(news)
            case StageHealth():
                self._hear_health(run, news)
            case StageGone(detail):
                self._bury(run, detail)
            case _:
                assert_never(news)

    def _hear_loading(self, run: StageRun, news: StageLoading) -> None:
        if news.share - run.share >= SHARE_STEP or news.share >= 1:
            run.share = news.share
            self.on_change()

    def _hear_health(self, run: StageRun, news: StageHealth) -> None:
        run.counters = news.counters
        run.asked_ms, run.heard_ms = None, self.clock().boottime_ms
        if news.health != run.health and not run.is_ending:
            run.health = news.health
            self.on_change()

    def _bury(self, run: StageRun, detail: str) -> None:
        run.child = None
        run.settled.set()
        if run.is_fenced:
            self.reach(AFTER_KILL)
        if run.is_overdue:
            detail = f"not ready within {run.start_limit_s:g} s: {detail}"
        self.offer(StageEnded(run.load, detail))

    def _confirm(self, run: StageRun, news: StageListening) -> None:
        """Call a stage ready if it opened the very files that were identified."""
        assert run.part is not None
        if not are_unchanged(run.part.part_files):
            logger.error("%s was replaced while it was loaded", run.part.path)
            if run.child is not None:
                run.child.kill()
            return
        run.share = 1.0
        run.settled.set()
        run.openai_base_url = news.openai_base_url
        if news.openai_base_url is not None:
            run.openai_port = urlsplit(news.openai_base_url).port or 0
        status = attrs.evolve(run.status(), state=StageState.READY)
        self.offer(StageBecameReady(run.load, status))

    async def _restart(self, run: StageRun, detail: str, pause_s: float) -> None:
        await trio.sleep(pause_s)
        if self._runs.get(run.load) is not run:
            return
        reply = await self.reload(run)
        # Once it is started again, another run stands in its place.
        if isinstance(reply, LoadFailed) and self._runs.get(run.load) is run:
            reason = f"{detail}\nnot restarted: {reply.refusal.text}"
            run.move(StageState.FAILED, reason, self.clock().unix_ms)
            self.on_change()

    def _forget_model(self, load: LoadStage) -> None:
        """A model has one stage here: older failures of it are history."""
        self.drop_failed(lambda run: run.load.key == load.key)

    def _forget_oldest(self) -> None:
        failed = [r for r in self._runs.values() if r.state is StageState.FAILED]
        for run in sorted(failed, key=lambda run: run.since_unix_ms)[:-MAX_FAILED]:
            del self._runs[run.load]


def _threads_of(run: StageRun) -> int | None:
    """Share this machine's cores when several stages of the run lie on it."""
    here = sum(stage.host == run.host for stage in run.settings.stages)
    if here <= 1:
        return None
    from skippyd.stage.loading import (  # noqa: PLC0415 - a large import, rarely needed
        physical_cores,
    )

    return max(1, physical_cores() // here)
