"""One job at a time, in order; it stops with a batch running, and holds on to nothing."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.errors import ModelError
from skippyd.model.slicing import slice_model
from skippyd.runtime import engine as engine_module
from skippyd.runtime.engine import QUEUE_CAPACITY, Engine, load_engine
from skippyd.runtime.failures import AbortedError, EngineError
from skippyd.runtime.llama.batch import BatchPart
from skippyd.runtime.settings import EngineSettings


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.llama.context import StageContext

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(ctx_size=256, n_threads=2)
"""Two compute threads: jobs belong to the engine thread."""
ONE_THREAD = EngineSettings(ctx_size=256, n_threads=1)
"""One compute thread: a caller may run its job in place."""


@pytest.fixture
def engine(tiny: GgufModel) -> Iterator[Engine]:
    made = load_engine(slice_model(tiny, 0, 3), SETTINGS)
    yield made
    made.stop()


def in_thread(run: object) -> tuple[threading.Thread, list[object]]:
    """A thread that calls, and what came of it."""
    outcome: list[object] = []

    def call() -> None:
        assert callable(run)
        try:
            outcome.append(run())
        except EngineError as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, outcome


def test_jobs_run_on_the_one_thread_in_their_order(engine: Engine) -> None:
    seen: list[tuple[str, int]] = []

    def job(number: int) -> int:
        seen.append((threading.current_thread().name, number))
        return number

    def ask(number: int) -> int:
        return engine.call(lambda _context: job(number))

    assert [ask(number) for number in range(5)] == list(range(5))
    assert seen == [("engine", n) for n in range(5)]


@pytest.fixture
def in_place(tiny: GgufModel) -> Iterator[Engine]:
    made = load_engine(slice_model(tiny, 0, 3), ONE_THREAD)
    yield made
    made.stop()


def test_an_idle_engine_of_one_thread_runs_a_job_in_the_callers(
    in_place: Engine,
) -> None:
    caller = threading.current_thread()
    assert in_place.call(lambda _context: threading.current_thread()) is caller
    with pytest.raises(ZeroDivisionError):
        in_place.call(lambda _context: 1 // 0)
    assert in_place.call(lambda context: context.width) == 64


def test_a_job_run_in_place_is_never_joined_and_never_overtakes(
    in_place: Engine,
) -> None:
    gate, running = threading.Event(), threading.Event()
    order: list[str] = []

    def hold(_context: StageContext) -> None:
        running.set()
        gate.wait(10)
        order.append("held")

    first, _ = in_thread(lambda: in_place.call(hold))
    running.wait(10)
    second, _ = in_thread(lambda: in_place.call(lambda _c: order.append("second")))
    while in_place._handed_over < 1:
        threading.Event().wait(0.001)
    third, _ = in_thread(lambda: in_place.call(lambda _c: order.append("third")))
    while in_place._handed_over < 2:
        threading.Event().wait(0.001)
    assert order == []
    gate.set()
    for thread in (first, second, third):
        thread.join(10)
    assert order == ["held", "second", "third"]
    assert in_place._handed_over == 0


def test_stopping_waits_for_a_job_that_runs_in_place(in_place: Engine) -> None:
    gate, running = threading.Event(), threading.Event()

    def hold(_context: StageContext) -> str:
        running.set()
        gate.wait(10)
        return "ended"

    thread, outcome = in_thread(lambda: in_place.call(hold))
    running.wait(10)
    stopping, _ = in_thread(in_place.stop)
    while not in_place._stopped:
        threading.Event().wait(0.001)
    assert stopping.is_alive()
    gate.set()
    thread.join(10)
    stopping.join(10)
    assert outcome == ["ended"]
    assert not stopping.is_alive()


def test_what_a_job_raises_is_the_callers(engine: Engine) -> None:
    def broken(_context: StageContext) -> None:
        raise ZeroDivisionError("in the job")

    with pytest.raises(ZeroDivisionError, match="in the job"):
        engine.call(broken)
    assert engine.call(lambda context: context.width) == 64


def test_a_stopped_engine_refuses_and_may_be_stopped_again(engine: Engine) -> None:
    engine.stop()
    engine.stop()
    with pytest.raises(AbortedError, match="the engine is stopped"):
        engine.call(lambda _context: None)
    assert not [t for t in threading.enumerate() if t.name == "engine"]


def test_jobs_that_wait_when_the_engine_stops_get_an_answer(engine: Engine) -> None:
    """None of them waits for ever: they run, and their batches are aborted."""
    gate, running = threading.Event(), threading.Event()

    def hold(_context: StageContext) -> str:
        running.set()
        gate.wait(10)
        return "held"

    def batch(context: StageContext) -> object:
        return context.decode([BatchPart(sequence=0, position=0, tokens=[1])])

    first, held = in_thread(lambda: engine.call(hold))
    running.wait(10)
    waiting = [in_thread(lambda: engine.call(batch)) for _ in range(4)]
    while engine._jobs.qsize() < 4:
        threading.Event().wait(0.001)
    stopping, _ = in_thread(engine.stop)
    while not engine._stopped:
        threading.Event().wait(0.001)
    gate.set()
    for thread in (first, stopping, *(thread for thread, _ in waiting)):
        thread.join(10)
        assert not thread.is_alive()
    assert held == ["held"]
    assert [type(outcome[0]) for _, outcome in waiting] == [AbortedError] * 4


def test_the_queue_is_bounded(engine: Engine) -> None:
    gate, running = threading.Event(), threading.Event()

    def hold(_context: StageContext) -> None:
        running.set()
        gate.wait(10)

    thread, _ = in_thread(lambda: engine.call(hold))
    running.wait(10)
    for _ in range(QUEUE_CAPACITY):
        engine._jobs.put(engine_module._Job(lambda _c: None, _taken_lock()))
    with pytest.raises(EngineError, match="more than 256 jobs wait for the engine"):
        engine.call(lambda _context: None)
    gate.set()
    thread.join(10)
    assert engine.call(lambda _context: "again") == "again"


def _taken_lock() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def test_a_caller_does_not_wait_for_ever(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "JOB_SECONDS", 0.05)
    gate = threading.Event()
    with pytest.raises(EngineError, match=r"did not answer within 0\.05 s"):
        engine.call(lambda _context: gate.wait(10))
    gate.set()


def test_an_engine_that_does_not_end_is_said_so(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, running = threading.Event(), threading.Event()

    def hold(_context: StageContext) -> None:
        running.set()
        gate.wait(10)

    thread, _ = in_thread(lambda: engine.call(hold))
    running.wait(10)
    monkeypatch.setattr(engine_module, "STOP_SECONDS", 0.05)
    with pytest.raises(EngineError, match=r"did not end within 0\.05 s"):
        engine.stop()
    gate.set()
    thread.join(10)
    engine._thread.join(10)
    engine.context.close()
    engine.model.close()


@pytest.mark.slow
def test_stopping_ends_a_batch_that_runs(smollm2_path: Path) -> None:
    """Stopped in the middle of a batch that would take seconds."""
    from skippyd.model.gguf_model import open_model  # noqa: PLC0415 - only here

    settings = attrs.evolve(SETTINGS, ctx_size=2048, n_batch=2048, n_ubatch=2048)
    running = threading.Event()

    def batch(context: StageContext) -> object:
        running.set()
        part = BatchPart(sequence=0, position=0, tokens=list(range(2000)))
        return context.decode([part])

    loaded = load_engine(slice_model(open_model(smollm2_path), 0, 15), settings)
    thread, outcome = in_thread(lambda: loaded.call(batch))
    running.wait(10)
    threading.Event().wait(0.2)
    begun = time.monotonic()
    loaded.stop()
    assert time.monotonic() - begun < 3.0
    thread.join(10)
    assert [type(result) for result in outcome] == [AbortedError]


def test_a_context_that_is_refused_frees_the_model(tiny: GgufModel) -> None:
    settings = attrs.evolve(SETTINGS, cache_type_v="q8_0", flash_attn_type="disabled")
    with pytest.raises(ModelError, match="refused the context"):
        load_engine(slice_model(tiny, 0, 3), settings)
    assert not [t for t in threading.enumerate() if t.name == "engine"]


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.slow
@pytest.mark.usefixtures("no_leaks")
def test_twenty_lives_of_an_engine_leave_nothing(zoo: dict[str, GgufModel]) -> None:
    """Descriptors, threads and memory; one model kept each time would be 60 MiB."""
    model = zoo["llama-biases"]
    settings = attrs.evolve(SETTINGS, ctx_size=2048)

    def live() -> None:
        loaded = load_engine(slice_model(model, 1, 5), settings)
        row = bytes(4 * loaded.context.width)
        part = BatchPart(sequence=0, position=0, activation=row * 8)
        loaded.call(lambda context: context.decode([part]))
        loaded.stop()

    for _ in range(3):
        live()
    descriptors, pages = len(os.listdir("/proc/self/fd")), resident_pages()  # noqa: PTH208
    for _ in range(20):
        live()
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208
    grown = (resident_pages() - pages) * os.sysconf("SC_PAGE_SIZE")
    assert grown < 10 * 2**20
