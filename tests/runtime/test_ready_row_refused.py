"""A row that is not what was foreseen is not run; one that fails leaves the session whole."""

from __future__ import annotations

import contextlib
import ctypes
import socket
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pytest

from skippyd.core.wire.sampling import SamplingBlock
from skippyd.model.slicing import slice_model
from skippyd.runtime.failures import (
    AbortedError,
    EngineError,
    KvFullError,
    SamplingError,
)
from skippyd.runtime.llama.bindings import address_of, llama
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.stage_runtime import load_stage_runtime
from support.one_slice import OneSlice


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.interface import StepResult

    Change = Callable[["Slice"], object]

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(ctx_size=256, lane_count=2)
VOCABULARY = 320
PROMPT = [int(t) for t in np.random.default_rng(8).integers(0, VOCABULARY, 20)]
END = len(PROMPT)
SAMPLE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32
)
RANGES = {"first": (0, 3), "middle": (2, 4), "final": (3, 6), "whole": (0, 6)}


@attrs.define
class Slice(OneSlice):
    """One stage, and what it holds."""

    def length(self) -> int:
        """What the table and the cache agree that the session holds."""
        found = self.runtime._sessions.find(1)
        assert found is not None
        held = self.runtime._engine.context.length(found.sequence)
        assert (held, len(found.tokens)) == (found.length, found.length)
        return held

    def next_token(self) -> int:
        """The token that is foreseen: the one just drawn, where one is drawn."""
        token = self.step(0, PROMPT).token
        return PROMPT[0] if token is None else token


def given(result: StepResult | None) -> tuple[int | None, bytes]:
    """What a step or a row gave, as it was then."""
    assert result is not None
    row = result.activation
    return result.token, b"" if row is None else bytes(row)


@contextlib.contextmanager
def loaded(
    model: GgufModel, name: str, settings: EngineSettings = SETTINGS
) -> Iterator[Slice]:
    runtime = load_stage_runtime(slice_model(model, *RANGES[name]), settings)
    with contextlib.closing(runtime):
        yield Slice(runtime)


@pytest.fixture(params=RANGES)
def stage(tiny: GgufModel, request: pytest.FixtureRequest) -> Iterator[Slice]:
    with loaded(tiny, request.param) as made:
        yield made


@pytest.fixture
def first(tiny: GgufModel) -> Iterator[Slice]:
    with loaded(tiny, "first") as made:
        yield made


# ---- there is none -----------------------------------------------------------------


def test_an_unknown_session_has_no_row(stage: Slice) -> None:
    assert stage.runtime.ready_row(1) is None
    stage.step(0, PROMPT)
    assert stage.runtime.ready_row(2) is None
    stage.runtime.release(1)
    assert stage.runtime.ready_row(1) is None


def test_where_python_captures_there_is_no_row(tiny: GgufModel) -> None:
    for name in ("first", "middle"):
        with loaded(tiny, name, attrs.evolve(SETTINGS, capture="python")) as stage:
            stage.step(0, PROMPT)
            assert stage.runtime.statistics().capture == "python"
            assert stage.runtime.ready_row(1) is None


# ---- nothing is done ---------------------------------------------------------------


@pytest.mark.parametrize("token", [-1, -(2**31), VOCABULARY, 2**31 - 1, 2**31])
@pytest.mark.parametrize("name", ["first", "final", "whole"])
def test_a_token_outside_the_vocabulary_is_not_run(
    tiny: GgufModel, name: str, token: int
) -> None:
    with loaded(tiny, name) as stage:
        good = stage.next_token()
        before = stage.runtime.statistics()
        ready = stage.ready(good)
        assert ready.run(token) is None
        assert stage.runtime.statistics() == before
        assert stage.length() == END
        assert given(ready.run(good)) == given(stage.step(END, [good]))


def test_a_middle_stage_passes_on_any_token_as_its_steps_do(tiny: GgufModel) -> None:
    """It has no vocabulary, and looks at none."""
    with loaded(tiny, "middle") as stage:
        stage.step(0, PROMPT)
        ready = stage.ready(2**31 - 1)
        assert [ready.run(token) for token in (-1, 2**31)] == [None, None]
        by_row = given(ready.run(2**31 - 1))
        assert stage.length() == END + 1
        assert by_row == given(stage.step(END, [2**31 - 1]))


def released(stage: Slice) -> None:
    stage.runtime.release(1)


def begun_again(stage: Slice) -> None:
    stage.runtime.release(1)
    stage.step(0, PROMPT)


def taken_by_another(stage: Slice) -> None:
    stage.runtime.release(1)
    stage.step(0, PROMPT, session=2)


def trimmed(stage: Slice) -> None:
    stage.runtime.trim(1, END - 3)


def stepped(stage: Slice) -> None:
    stage.step(END, [4])


def rewound(stage: Slice) -> None:
    stage.step(END - 3, [4])


def rewound_to_the_same_length(stage: Slice) -> None:
    stage.step(END - 1, [4])


def configured_anew(stage: Slice) -> None:
    """The chain whose address the row holds is freed."""
    stage.runtime.configure(1, SamplingBlock(flags=1, seed=5))


CHANGES: list[Change] = [
    released,
    begun_again,
    taken_by_another,
    trimmed,
    stepped,
    rewound,
    rewound_to_the_same_length,
    configured_anew,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_session_that_has_changed_meanwhile_is_not_run(
    stage: Slice, change: Change
) -> None:
    token = stage.next_token()
    ready = stage.ready(token)
    change(stage)
    before = stage.runtime.statistics()
    held = [stage.runtime._engine.context.length(sequence) for sequence in (0, 1)]
    assert ready.run(token) is None
    assert stage.runtime.statistics() == before
    assert held == [
        stage.runtime._engine.context.length(sequence) for sequence in (0, 1)
    ]


@pytest.mark.parametrize(
    "change",
    [
        begun_again,
        trimmed,
        stepped,
        rewound,
        rewound_to_the_same_length,
        configured_anew,
    ],
)
def test_a_row_made_ready_after_the_change_is_run(stage: Slice, change: Change) -> None:
    token = stage.next_token()
    stage.ready(token)
    change(stage)
    end = stage.length()
    by_row = given(stage.ready(token).run(token))
    assert stage.length() == end + 1
    assert by_row == given(stage.step(end, [token]))


def test_a_row_is_run_once_until_it_is_made_ready_again(stage: Slice) -> None:
    token = stage.next_token()
    ready = stage.ready(token)
    assert ready.run(token) is not None
    assert ready.run(token) is None
    assert stage.length() == END + 1
    ready.make_ready()
    assert ready.run(token) is not None
    assert stage.length() == END + 2


# ---- failures ----------------------------------------------------------------------


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("name", RANGES)
def test_an_aborted_row_is_cut_back_and_may_be_run_again(
    tiny: GgufModel, name: str, n_threads: int
) -> None:
    settings = attrs.evolve(SETTINGS, n_threads=n_threads)
    with loaded(tiny, name, settings) as stage:
        token = stage.next_token()
        ready, before = stage.ready(token), stage.runtime.statistics()
        stage.runtime.abort()
        with pytest.raises(AbortedError, match="the batch was aborted"):
            ready.run(token)
        stage.runtime._engine.context.abort.lower()
        assert stage.length() == END
        assert stage.runtime.statistics() == before
        by_row = given(stage.ready(token).run(token))
        assert by_row == given(stage.step(END, [token]))


@pytest.mark.parametrize("name", ["final", "whole"])
def test_a_row_that_failed_with_another_token_does_not_give_an_old_draw(
    tiny: GgufModel, name: str
) -> None:
    with loaded(tiny, name) as stage:
        token = stage.next_token()
        ready = stage.ready(token)
        stage.runtime.abort()
        with pytest.raises(AbortedError):
            ready.run((token + 1) % VOCABULARY)
        stage.runtime._engine.context.abort.lower()
        assert ready.run(token) is None, "it is to be made ready again"
        by_row = given(stage.ready(token).run(token))
        assert by_row == given(stage.step(END, [token]))


def test_a_full_cache_leaves_the_session_usable(stage: Slice) -> None:
    for start in range(0, 256, 64):
        stage.step(start, [*PROMPT, *PROMPT, *PROMPT, 1, 2, 3, 4])
    with pytest.raises(KvFullError, match="KV cache of 256"):
        stage.ready(5).run(5)
    assert stage.length() == 256
    stage.runtime.trim(1, 100)
    by_row = given(stage.ready(5).run(5))
    assert by_row == given(stage.step(100, [5]))


def test_a_row_of_a_closed_runtime_says_so(stage: Slice) -> None:
    token = stage.next_token()
    ready = stage.ready(token)
    stage.runtime.close()
    with pytest.raises(AbortedError, match="the engine is stopped"):
        ready.run(token)


def test_a_failure_behind_the_departure_is_of_no_kind_that_a_chain_survives(
    first: Slice,
) -> None:
    """The next stage has the row: "aborted, try again" would not be true of it."""
    token, really = first.next_token(), llama().llama_decode

    def decode(context: int, batch: object) -> int:
        really(context, batch)
        return 2

    ready = first.ready(token)
    signature = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, llama().llama_batch)
    aborted_at_last = signature(decode)
    ready._native._row.decode = address_of(aborted_at_last)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ready.deliver(bytearray(8), (0, 4), ours.fileno())
        with pytest.raises(EngineError, match="after the row was passed on") as caught:
            ready.run(token)
        assert type(caught.value) is EngineError
        assert isinstance(caught.value.__cause__, AbortedError)
        assert len(theirs.recv(4096)) == 8 + 4 * first.runtime.width
        assert first.length() == END
        ready.deliver_nowhere()
        ready.make_ready()
        with pytest.raises(AbortedError, match="the batch was aborted"):
            ready.run(token)
        assert first.length() == END


@pytest.mark.parametrize("name", ["final", "whole"])
def test_a_draw_that_fails_is_cut_back_and_may_be_drawn_again(
    tiny: GgufModel, name: str
) -> None:
    with loaded(tiny, name) as stage:
        token = stage.next_token()
        ready = stage.ready(token)
        row = ready._native._row
        really, nothing = row.sample, SAMPLE(lambda *_words: -1)
        row.sample = address_of(nothing)
        with pytest.raises(SamplingError, match="no candidate"):
            ready.run(token)
        row.sample = really
        assert stage.length() == END
        by_row = given(stage.ready(token).run(token))
        assert by_row == given(stage.step(END, [token]))
