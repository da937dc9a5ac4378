"""Sessions on a loaded range: whole after every failure, the same as the unsplit model."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pytest

from skippyd.core.wire.sampling import SamplingBlock
from skippyd.model.slicing import slice_model
from skippyd.runtime.failures import (
    AbortedError,
    BadBatchError,
    EngineError,
    KvFullError,
    SamplingError,
)
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.stage_runtime import LlamaStageRuntime, load_stage_runtime
from skippyd.runtime.unsplit import UnsplitModel


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.interface import StageRuntime

    Row = np.ndarray[tuple[int], np.dtype[np.float32]]

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(ctx_size=256, lane_count=2)
PROMPT = [int(t) for t in np.random.default_rng(8).integers(0, 320, 30)]


@attrs.define
class Pair:
    """A model cut in two, driven step by step."""

    first: LlamaStageRuntime
    final: LlamaStageRuntime
    seen: list[tuple[int, bytes]]

    def step(
        self, session: int, position: int, tokens: Sequence[int], *, predict: bool
    ) -> int | None:
        sent = self.first.step(
            session, position=position, tokens=tokens, activation=None, predict=predict
        )
        assert sent.token is None
        assert sent.activation is not None
        got = self.final.step(
            session,
            position=position,
            tokens=tokens,
            activation=sent.activation,
            predict=predict,
        )
        assert got.activation is None
        return got.token

    def generate(self, session: int, count: int) -> list[int]:
        self.step(session, 0, PROMPT[:-1], predict=False)
        tokens = [PROMPT[-1]]
        for position in range(len(PROMPT) - 1, len(PROMPT) - 1 + count):
            drawn = self.step(session, position, tokens[-1:], predict=True)
            assert drawn is not None
            tokens.append(drawn)
        return tokens[1:]


@pytest.fixture
def pair(tiny: GgufModel) -> Iterator[Pair]:
    seen: list[tuple[int, bytes]] = []

    def sink(position: int, row: Row) -> None:
        seen.append((position, row.tobytes()))

    first = load_stage_runtime(slice_model(tiny, 0, 3), SETTINGS)
    final = load_stage_runtime(slice_model(tiny, 3, 6), SETTINGS, logits_sink=sink)
    yield Pair(first, final, seen)
    first.close()
    final.close()


def held(runtime: StageRuntime) -> int:
    return runtime.statistics().sessions


def test_two_runtimes_are_the_unsplit_model(tiny: GgufModel, pair: Pair) -> None:
    with UnsplitModel(tiny.path, SETTINGS) as model:
        rows = list(model.generate(PROMPT, chunk=64, limit=12, sampling=None))
    assert pair.generate(1, 12) == [row.token for row in rows]
    assert pair.seen == [(row.position, row.logits.tobytes()) for row in rows]
    assert len({row.token for row in rows}) > 2


def test_a_position_behind_the_end_rewinds_first(pair: Pair) -> None:
    tokens = pair.generate(1, 12)
    position = len(PROMPT) - 1 + 4
    again = [pair.step(1, position, tokens[3:4], predict=True)]
    assert again == tokens[4:5]
    assert pair.seen[-1] == pair.seen[4]


def test_a_gap_is_refused_and_nothing_is_begun(pair: Pair) -> None:
    with pytest.raises(
        BadBatchError, match=r"session 9 holds 0 positions.*begins at 4"
    ):
        pair.step(9, 4, [1], predict=False)
    assert held(pair.first) == 0
    pair.step(9, 0, [1, 2], predict=False)
    with pytest.raises(
        BadBatchError, match=r"session 9 holds 2 positions.*begins at 3"
    ):
        pair.step(9, 3, [1], predict=False)
    assert pair.step(9, 2, [1], predict=True) is not None


@pytest.mark.parametrize("bad", [[320], [-1], [], [1] * 65])
def test_a_failed_step_leaves_sessions_as_they_were(pair: Pair, bad: list[int]) -> None:
    tokens = pair.generate(1, 3)
    before = pair.seen[-1]
    end = len(PROMPT) + 2
    for session, position in ((1, end), (2, 0)):
        with pytest.raises(BadBatchError):
            pair.first.step(
                session, position=position, tokens=bad, activation=None, predict=False
            )
    assert held(pair.first) == 1
    pair.step(1, end - 1, [tokens[1]], predict=True)
    assert pair.seen[-1] == before


def test_sidebands_of_the_final_stage_are_checked(pair: Pair) -> None:
    """The sampler chain indexes its tables with them."""
    row = memoryview(bytes(4 * pair.final.width))
    for tokens, words in (
        ([320], r"token 320 is outside 0\.\.319"),
        ([1, 2], "1 rows of activation with 2 tokens"),
    ):
        with pytest.raises(BadBatchError, match=words):
            pair.final.step(1, position=0, tokens=tokens, activation=row, predict=False)
    with pytest.raises(BadBatchError, match="send the token sideband"):
        pair.final.step(1, position=0, tokens=[], activation=row, predict=True)
    assert held(pair.final) == 0
    drawn = pair.final.step(1, position=0, tokens=[5], activation=row, predict=True)
    assert drawn.token is not None


def test_a_full_cache_leaves_the_session_usable(pair: Pair) -> None:
    for start in range(0, 256, 64):
        pair.step(1, start, [start // 64] * 64, predict=False)
    for session, position in ((1, 256), (2, 0)):
        with pytest.raises(KvFullError, match="KV cache of 256"):
            pair.step(session, position, [1], predict=False)
    assert held(pair.first) == 1
    pair.first.trim(1, 100)
    pair.final.trim(1, 100)
    assert pair.step(1, 100, [7], predict=True) is not None


def test_more_sessions_than_lanes_are_refused_until_one_ends(pair: Pair) -> None:
    for session in (1, 2):
        pair.step(session, 0, [1], predict=False)
    with pytest.raises(KvFullError, match="all 2 sequences are taken"):
        pair.step(3, 0, [1], predict=False)
    with pytest.raises(KvFullError, match="all 2 sequences are taken"):
        pair.final.configure(3, SamplingBlock(flags=1))
    for runtime in (pair.first, pair.final):
        assert runtime.release(1) is True
        assert runtime.release(1) is False
    assert pair.step(3, 0, [1], predict=True) is not None


def test_a_new_session_sees_nothing_of_the_one_before(pair: Pair) -> None:
    first = pair.generate(1, 6)
    for runtime in (pair.first, pair.final):
        runtime.release(1)
    pair.seen.clear()
    assert pair.generate(2, 6) == first
    assert pair.first.statistics().sessions == 1


def test_trimming_what_is_not_there_is_refused(pair: Pair) -> None:
    with pytest.raises(BadBatchError, match="unknown session 4"):
        pair.first.trim(4, 0)
    pair.step(1, 0, [1, 2, 3], predict=False)
    with pytest.raises(BadBatchError, match="session 1 cannot be cut to -1"):
        pair.first.trim(1, -1)
    pair.first.trim(1, 7)
    pair.step(1, 3, [4], predict=False)


def test_a_refused_sampling_block_changes_nothing(pair: Pair) -> None:
    good = SamplingBlock(flags=1, temperature=1.0, seed=3)
    bad = attrs.evolve(good, mirostat_mode=2)
    with pytest.raises(SamplingError):
        pair.final.configure(1, bad)
    assert held(pair.final) == 0
    pair.final.configure(1, good)
    before = pair.generate(1, 8)
    pair.final.configure(1, good)
    with pytest.raises(SamplingError):
        pair.final.configure(1, bad)
    assert pair.generate(1, 8) == before


def test_counters_tell_what_was_done(pair: Pair) -> None:
    pair.generate(1, 5)
    figures = pair.final.statistics()
    assert (figures.steps, figures.prefill_tokens) == (6, 29)
    assert len(figures.decode_ns) == 5
    assert all(0 < ns < 10**9 for ns in figures.decode_ns)
    assert (figures.sessions, figures.session_limit) == (1, 2)
    assert figures.capture == "none"
    assert pair.first.statistics().capture == "native"
    described = pair.final.model_slice
    assert figures.resident_tensor_bytes == described.resident_tensor_bytes
    assert figures.loaded_bytes >= figures.resident_tensor_bytes


def test_counters_may_be_read_while_others_work(pair: Pair) -> None:
    """Statistics do not wait for the engine, and never see half a step."""
    stop = threading.Event()
    faults: list[BaseException] = []

    def watch() -> None:
        try:
            while not stop.wait(0.0003):
                figures = pair.first.statistics()
                assert len(figures.decode_ns) <= figures.steps
                assert figures.sessions <= 2
        except BaseException as error:  # noqa: BLE001 - the test's thread shows it
            faults.append(error)

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    for _ in range(3):
        pair.generate(1, 20)
        for runtime in (pair.first, pair.final):
            runtime.release(1)
    stop.set()
    for watcher in watchers:
        watcher.join()
    assert faults == []


def test_an_aborted_step_is_cut_back(pair: Pair) -> None:
    tokens = pair.generate(1, 3)
    end = len(PROMPT) + 2
    pair.first.abort()
    with pytest.raises(AbortedError):
        pair.first.step(
            1, position=end, tokens=tokens[-1:], activation=None, predict=False
        )
    pair.first._engine.context.abort.lower()
    assert pair.step(1, end, tokens[-1:], predict=True) is not None


def test_a_closed_runtime_says_so(pair: Pair) -> None:
    pair.first.close()
    pair.first.close()
    with pytest.raises(AbortedError, match="the engine is stopped"):
        pair.step(1, 0, [1], predict=False)
    assert pair.first.statistics().capture == "native"


def test_a_sink_that_fails_is_not_swallowed(tiny: GgufModel) -> None:
    def sink(_position: int, _row: Row) -> None:
        raise BrokenPipeError("nobody reads")

    whole = load_stage_runtime(slice_model(tiny, 0, 6), SETTINGS, logits_sink=sink)
    with pytest.raises(BrokenPipeError, match="nobody reads"):
        whole.step(1, position=0, tokens=[1], activation=None, predict=True)
    whole.close()


def test_an_architecture_without_the_expected_tensor_is_an_engine_error(
    tiny: GgufModel,
) -> None:
    """What the capture did not see is never passed on as an activation."""
    first = load_stage_runtime(slice_model(tiny, 0, 3), SETTINGS)
    capture = first._engine.context.capture
    assert capture is not None
    capture._state.target = b"l_out-9"  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match="gave 0 bytes, 256 were expected"):
        first.step(1, position=0, tokens=[1], activation=None, predict=False)
    assert held(first) == 0
    first.close()


def test_neutral_numbers_stay_finite(pair: Pair) -> None:
    pair.generate(1, 2)
    for _position, row in pair.seen:
        assert math.isfinite(float(np.frombuffer(row, np.float32).sum()))
