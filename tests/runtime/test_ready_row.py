"""A row made ready is the step that it stands for: same bits, same tokens, same books."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pytest

from skippyd.core.wire.sampling import SamplingBlock
from skippyd.model.slicing import slice_model
from skippyd.runtime.interface import StepResult
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.stage_runtime import LlamaStageRuntime, load_stage_runtime


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.ready_row import ReadyRow

    Feed = Callable[[int, int], int]
    Row = np.ndarray[tuple[int], np.dtype[np.float32]]

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(ctx_size=256, lane_count=2)
PROMPT = [int(t) for t in np.random.default_rng(8).integers(0, 320, 30)]
VOCABULARY = 320
END = len(PROMPT)
SAMPLED = SamplingBlock(flags=1, seed=5, temperature=1.0)
PENALISED = attrs.evolve(
    SAMPLED, presence_penalty=1.5, repeat_penalty=1.3, penalty_last_n=8
)
HEAD = b"head....and.....tail"
TOKEN_AT = (4, 12)
CUTS = {"whole": (0, 6), "two": (0, 3, 6), "three": (0, 2, 4, 6)}


def as_drawn(_number: int, drawn: int) -> int:
    return drawn


def another_now_and_then(number: int, drawn: int) -> int:
    return (drawn + 1) % VOCABULARY if number in (2, 3, 7) else drawn


@attrs.define
class Trace:
    """What a generation gave: tokens, and every activation between two stages."""

    tokens: list[int] = attrs.Factory(list)
    activations: list[bytes] = attrs.Factory(list)


@attrs.define
class Stages:
    """A model cut into runtimes; each token by steps or by rows made ready."""

    runtimes: list[LlamaStageRuntime]

    def step(
        self,
        tokens: Sequence[int],
        position: int,
        trace: Trace,
        *,
        predict: bool = True,
        session: int = 1,
    ) -> int | None:
        row: bytes | None = None
        result = StepResult()
        for runtime in self.runtimes:
            result = runtime.step(
                session,
                position=position,
                tokens=tokens,
                activation=row,
                predict=predict,
            )
            row = self._note(result, trace)
        return result.token

    def run(self, token: int, trace: Trace, session: int = 1) -> int | None:
        row, drawn = b"", None
        for runtime in self.runtimes:
            ready = ready_row(runtime, session)
            if row:
                ready.input[:] = row
            result = ready.run(token)
            assert result is not None
            row, drawn = self._note(result, trace), result.token
        return drawn

    def prefill(self, session: int = 1) -> int:
        """Read the prompt; gives the first token drawn."""
        self.step(PROMPT[:-1], 0, Trace(), predict=False, session=session)
        drawn = self.step(PROMPT[-1:], END - 1, Trace(), session=session)
        assert drawn is not None
        return drawn

    def generate(
        self,
        count: int,
        *,
        by_rows: bool,
        block: SamplingBlock | None = None,
        feed: Feed = as_drawn,
    ) -> Trace:
        """Generate from the prompt in a new session; `feed` may feed another token."""
        for runtime in self.runtimes:
            runtime.configure(1, block)
        trace, token = Trace(), self.prefill()
        for number in range(count):
            fed = feed(number, token)
            drawn = (
                self.run(fed, trace)
                if by_rows
                else self.step([fed], END + number, trace)
            )
            assert drawn is not None
            token = drawn
            trace.tokens.append(token)
        for runtime in self.runtimes:
            runtime.release(1)
        return trace

    @staticmethod
    def _note(result: StepResult, trace: Trace) -> bytes:
        row = b"" if result.activation is None else bytes(result.activation)
        trace.activations.append(row)
        return row


def ready_row(runtime: LlamaStageRuntime, session: int = 1) -> ReadyRow:
    ready = runtime.ready_row(session)
    assert ready is not None
    return ready


@contextlib.contextmanager
def loaded(
    model: GgufModel,
    bounds: Sequence[int],
    settings: EngineSettings = SETTINGS,
    sink: Callable[[int, Row], None] | None = None,
) -> Iterator[Stages]:
    with contextlib.ExitStack() as stack:
        runtimes = []
        for start, end in itertools.pairwise(bounds):
            described = slice_model(model, start, end)
            runtime = load_stage_runtime(
                described, settings, logits_sink=sink if described.is_final else None
            )
            stack.callback(runtime.close)
            runtimes.append(runtime)
        yield Stages(runtimes)


@pytest.fixture
def pair(tiny: GgufModel) -> Iterator[Stages]:
    with loaded(tiny, CUTS["two"]) as stages:
        yield stages


@pytest.fixture
def whole(tiny: GgufModel) -> Iterator[Stages]:
    with loaded(tiny, CUTS["whole"]) as stages:
        yield stages


# ---- the same as by steps ----------------------------------------------------------


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_rows_give_the_bits_and_tokens_that_steps_give(
    tiny: GgufModel, cut: str, n_threads: int
) -> None:
    settings = attrs.evolve(SETTINGS, n_threads=n_threads)
    with loaded(tiny, CUTS[cut], settings) as stages:
        by_steps = stages.generate(12, by_rows=False)
        assert stages.generate(12, by_rows=True) == by_steps
    assert len(set(by_steps.tokens)) > 2
    assert len(by_steps.activations) == 12 * (len(CUTS[cut]) - 1)


@pytest.mark.slow
def test_every_architecture_runs_by_rows(zoo: dict[str, GgufModel]) -> None:
    for name, model in zoo.items():
        bounds = (0, model.layer_count // 2, model.layer_count)
        with loaded(model, bounds) as stages:
            by_steps = stages.generate(4, by_rows=False)
            assert stages.generate(4, by_rows=True) == by_steps, name


@pytest.mark.parametrize("feed", [as_drawn, another_now_and_then])
@pytest.mark.parametrize("block", [None, SAMPLED, PENALISED])
@pytest.mark.parametrize("cut", CUTS)
def test_draws_are_those_of_steps_also_when_another_token_is_fed(
    tiny: GgufModel, cut: str, block: SamplingBlock | None, feed: Feed
) -> None:
    """It then cannot have been foreseen what the chain accepts."""
    with loaded(tiny, CUTS[cut]) as stages:
        by_steps = stages.generate(12, by_rows=False, block=block, feed=feed)
        assert stages.generate(12, by_rows=True, block=block, feed=feed) == by_steps
    assert len(set(by_steps.tokens)) > (2 if block is None else 6)


def test_penalties_and_seed_move_the_draws(whole: Stages) -> None:
    """Else the test above would not see them."""
    traces = [
        whole.generate(12, by_rows=True, block=block).tokens
        for block in (None, SAMPLED, PENALISED, attrs.evolve(SAMPLED, seed=6))
    ]
    assert len({tuple(tokens) for tokens in traces}) == len(traces)


def test_rows_and_steps_take_turns(pair: Stages) -> None:
    by_steps = pair.generate(12, by_rows=False, block=PENALISED)
    for runtime in pair.runtimes:
        runtime.configure(1, PENALISED)
    trace, token = Trace(), pair.prefill()
    for number in range(12):
        if number % 3 == 1:
            drawn = pair.step([token], END + number, trace)
        else:
            drawn = pair.run(token, trace)
        assert drawn is not None
        token = drawn
        trace.tokens.append(token)
    assert trace == by_steps


def test_a_block_that_changes_between_rows_is_drawn_by(pair: Stages) -> None:
    final = pair.runtimes[-1]

    def generated(*, by_rows: bool) -> list[int | None]:
        drawn: list[int | None] = [pair.prefill()]
        for number, block in enumerate((None, SAMPLED, PENALISED, None, SAMPLED)):
            final.configure(1, block)
            fed = drawn[-1] or 0
            drawn.append(
                pair.run(fed, Trace())
                if by_rows
                else pair.step([fed], END + number, Trace())
            )
        for runtime in pair.runtimes:
            runtime.release(1)
        return drawn

    by_steps = generated(by_rows=False)
    assert generated(by_rows=True) == by_steps


def test_two_sessions_have_rows_of_their_own(pair: Stages) -> None:
    """Their rows take turns; what one gave is not what the other gives next."""
    traces = []
    for by_rows in (False, True):
        trace = Trace()
        tokens = {1: pair.prefill(1), 2: (pair.prefill(2) + 1) % VOCABULARY}
        for number in range(5):
            for session in (1, 2):
                fed = tokens[session]
                drawn = (
                    pair.run(fed, trace, session)
                    if by_rows
                    else pair.step([fed], END + number, trace, session=session)
                )
                assert drawn is not None
                tokens[session] = drawn
                trace.tokens.append(drawn)
        for runtime in pair.runtimes:
            runtime.release(1)
            runtime.release(2)
        traces.append(trace)
    assert traces[0] == traces[1]


def test_an_activation_holds_until_the_next_row_of_its_session(pair: Stages) -> None:
    first, drawn = pair.runtimes[0], [pair.prefill(session) for session in (1, 2)]
    one = ready_row(first, 1).run(drawn[0])
    assert one is not None
    assert one.activation is not None
    before = bytes(one.activation)
    assert ready_row(first, 2).run((drawn[1] + 5) % VOCABULARY) is not None
    first.step(2, position=END + 1, tokens=[7, 8, 9], activation=None, predict=False)
    assert bytes(one.activation) == before


def test_each_row_is_told_to_the_sink_as_by_steps(tiny: GgufModel) -> None:
    seen: list[tuple[int, bytes]] = []

    def sink(position: int, row: Row) -> None:
        seen.append((position, row.tobytes()))

    with loaded(tiny, CUTS["two"], sink=sink) as stages:
        by_steps = stages.generate(8, by_rows=False)
        told = seen.copy()
        seen.clear()
        assert stages.runtimes[-1].tells_logits
        assert stages.generate(8, by_rows=True) == by_steps
    assert seen == told
    assert [position for position, _row in seen] == list(range(END - 1, END + 8))


def test_a_sink_that_fails_is_not_swallowed(tiny: GgufModel) -> None:
    def sink(_position: int, _row: Row) -> None:
        raise BrokenPipeError("nobody reads")

    with loaded(tiny, CUTS["whole"], sink=sink) as stages:
        stages.step(PROMPT, 0, Trace(), predict=False)
        with pytest.raises(BrokenPipeError, match="nobody reads"):
            ready_row(stages.runtimes[0]).run(5)


def test_rows_are_counted_as_steps_of_one_row(pair: Stages) -> None:
    pair.generate(5, by_rows=True)
    for runtime in pair.runtimes:
        figures = runtime.statistics()
        assert (figures.steps, figures.prefill_tokens) == (7, 29)
        assert len(figures.decode_ns) == 6
        assert all(0 < ns < 10**9 for ns in figures.decode_ns)


def test_a_row_tells_its_times(pair: Stages) -> None:
    token = pair.prefill()
    result = ready_row(pair.runtimes[0]).run(token)
    assert result is not None
    assert pair.runtimes[0].statistics().decode_ns[-1] == result.compute_ns > 0
    assert 0 <= result.wait_ns < 10**9
    assert result.sent_bytes == 0


# ---- over sockets ------------------------------------------------------------------


@pytest.mark.parametrize("cut", ["two", "three"])
def test_frames_on_sockets_carry_a_whole_generation(tiny: GgufModel, cut: str) -> None:
    """Stage to stage and back to stage 0, and no result is looked at."""
    with loaded(tiny, CUTS[cut]) as stages, contextlib.ExitStack() as stack:
        by_steps = stages.generate(8, by_rows=False, block=SAMPLED)
        for runtime in stages.runtimes:
            runtime.configure(1, SAMPLED)
        trace, token, frame = Trace(), stages.prefill(), b""
        links = [socket.socketpair() for _ in stages.runtimes]
        for ours, theirs in links:
            stack.enter_context(ours)
            stack.enter_context(theirs)
        for _ in range(8):
            for runtime, (ours, theirs) in zip(stages.runtimes, links, strict=True):
                ready = ready_row(runtime)
                if frame:
                    ready.input[:] = frame[len(HEAD) :]
                ready.deliver(bytearray(HEAD), TOKEN_AT, ours.fileno())
                result = ready.run(token)
                frame = theirs.recv(4096)
                assert result is not None
                assert result.sent_bytes == len(frame)
                first, second = struct.unpack_from("<4xi4xi", frame)
                assert first == second
                assert (
                    frame[: len(HEAD)]
                    == HEAD[:4] + frame[4:8] + b"and." + frame[12:16] + b"tail"
                )
                trace.activations.append(frame[len(HEAD) :])
                token = first
            trace.tokens.append(token)
            frame = b""
        assert trace == by_steps
