"""The engine: one job after another on the context, in the engine thread or in place.

The thread is a plain one and not a worker of trio's: a token must not pay for trio's
hand-over (59 us against 7). A context that computes with one thread may even be run in
the caller's: when nothing waits, a lane takes the baton and runs its job itself, which
spares a token two wakes of a sleeping thread (`adr/0001`). With more compute threads
the jobs stay in the engine thread, since those threads are bound to it.
"""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from skippyd.runtime.failures import AbortedError, EngineError
from skippyd.runtime.llama.context import StageContext
from skippyd.runtime.llama.model import load_slice


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.model.slicing import ModelSlice
    from skippyd.runtime.llama.model import LlamaModel
    from skippyd.runtime.settings import EngineSettings

T = TypeVar("T")
QUEUE_CAPACITY = 256
"""Jobs that may wait: every lane has at most one, so more means a caller run wild."""
JOB_SECONDS = 900.0
"""No batch takes that long; who waits longer waits for a thread that hangs."""
STOP_SECONDS = 10.0

logger = logging.getLogger("skippyd.engine")


@attrs.define
class _Job(Generic[T]):
    run: Callable[[StageContext], T]
    done: threading.Lock
    result: T | None = None
    error: BaseException | None = None

    def perform(self, context: StageContext) -> None:
        try:
            self.result = self.run(context)
        except BaseException as error:  # noqa: BLE001 - handed over to the caller's thread
            self.error = error
        self.done.release()


class Engine:
    """Runs jobs on one context in one thread.

    Args:
        model: The loaded model; owned from here on.
        context: Its context; owned from here on.
    """

    def __init__(self, model: LlamaModel, context: StageContext) -> None:
        self.model = model
        self.context = context
        self._jobs: queue.SimpleQueue[_Job[object] | None] = queue.SimpleQueue()
        self._stopped = False
        self._runs_in_place = context.settings.n_threads == 1
        # Held by whoever runs a job: the context is for one thread at a time.
        self._baton = threading.Lock()
        self._handed_over = 0  # jobs for the engine thread that have not ended
        # Held while a job is queued or the end is: nothing is queued behind the end.
        self._door = threading.Lock()
        self._thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self._thread.start()

    def call(self, run: Callable[[StageContext], T]) -> T:
        """Run a function on the context, after all that were called before it.

        Raises:
            EngineError: Whatever the function raises; or the engine is stopped, or
                more jobs wait than any number of lanes explains, or the job does not
                end.
        """
        if self._runs_in_place and self._take_baton():
            try:
                return run(self.context)
            finally:
                self._baton.release()
        return self._call_thread(run)

    def _take_baton(self) -> bool:
        """Take the context for this thread, unless somebody has it or waits for it."""
        with self._door:
            if self._stopped:
                raise AbortedError("the engine is stopped")
            return not self._handed_over and self._baton.acquire(blocking=False)

    def _call_thread(self, run: Callable[[StageContext], T]) -> T:
        done = threading.Lock()
        done.acquire()
        job = _Job(run, done)
        with self._door:
            if self._stopped:
                raise AbortedError("the engine is stopped")
            if self._jobs.qsize() >= QUEUE_CAPACITY:
                raise EngineError(
                    f"more than {QUEUE_CAPACITY} jobs wait for the engine"
                )
            self._handed_over += 1
            self._jobs.put(job)  # type: ignore[arg-type]  # the queue forgets the result's type
        if not done.acquire(timeout=JOB_SECONDS):
            raise EngineError(f"the engine did not answer within {JOB_SECONDS:g} s")
        if job.error is not None:
            raise job.error
        return job.result  # type: ignore[return-value]  # set whenever error is not

    def abort(self) -> None:
        """End the running batch and refuse later ones."""
        self.context.abort.raise_()

    def stop(self) -> None:
        """Abort, end the thread and free the context; harmless when repeated.

        Raises:
            EngineError: The thread did not end; the process has to.
        """
        with self._door:
            if self._stopped:
                return
            self._stopped = True
            self.abort()
            self._jobs.put(None)
        self._thread.join(STOP_SECONDS)
        if self._thread.is_alive() or not self._baton.acquire(timeout=STOP_SECONDS):
            raise EngineError(
                f"the engine's running job did not end within {STOP_SECONDS:g} s"
            )
        self.context.close()
        self.model.close()

    def _loop(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._baton:
                job.perform(self.context)
            with self._door:
                self._handed_over -= 1
            # Not held while waiting: a job keeps its batch and its result alive.
            del job


def load_engine(
    model_slice: ModelSlice,
    settings: EngineSettings,
    progress: Callable[[float], None] | None = None,
) -> Engine:
    """Load a slice and start its engine; blocks, call it off the trio thread.

    Raises:
        ModelError: llama.cpp refused the slice or the context.
    """
    model = load_slice(model_slice, settings, progress)
    try:
        context = StageContext(
            model,
            settings,
            capture_tensor=None if model_slice.is_final else model_slice.capture_tensor,
        )
    except BaseException:
        model.close()
        raise
    return Engine(model, context)
