"""A row run natively is a batch of one row; a failure of it sends nothing and draws nothing."""

from __future__ import annotations

import ctypes
import itertools
import socket
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pytest

from skippyd.runtime.failures import (
    AbortedError,
    BadBatchError,
    EngineError,
    KvFullError,
    SamplingError,
)
from skippyd.runtime.llama.batch import BatchPart
from skippyd.runtime.llama.bindings import address_of, llama
from skippyd.runtime.llama.native import THREW
from skippyd.runtime.llama.native_row import NativeRow, native_row
from skippyd.runtime.llama.sampler import SamplerChain
from skippyd.runtime.settings import EngineSettings
from support.engine_chain import ContextChain


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.llama.context import StageContext

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(ctx_size=256, lane_count=2)
PROMPT = [int(t) for t in np.random.default_rng(8).integers(0, 320, 20)]
END = len(PROMPT)
HEAD = b"head....and.....tail"
TOKEN_AT = (4, 12)
SAMPLE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32
)


@pytest.fixture
def chain(tiny: GgufModel) -> Iterator[ContextChain]:
    """Three stages that have read the prompt in sequence 0."""
    with ContextChain.of_slices(tiny, (2, 4), SETTINGS) as made:
        made.decode([prompt(0)])
        yield made


@pytest.fixture
def link() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        yield ours, theirs


def prompt(sequence: int) -> BatchPart:
    return BatchPart(sequence=sequence, position=0, tokens=PROMPT, wants_logits=True)


def row_of(context: StageContext, sequence: int = 0, *, by_token: bool) -> NativeRow:
    row = native_row(context, sequence, by_token=by_token)
    assert row is not None
    row.arrays.stand_at(END)
    return row


def rows_of(chain: ContextChain, sequence: int = 0) -> list[NativeRow]:
    return [
        row_of(context, sequence, by_token=index == 0)
        for index, context in enumerate(chain.contexts)
    ]


def is_empty(end: socket.socket) -> bool:
    try:
        return not end.recv(4096)
    except BlockingIOError:
        return True


def run_through(rows: list[NativeRow], token: int) -> list[bytes]:
    """Run a token through all stages; what passed between them."""
    passed = []
    for row, following in itertools.pairwise(rows):
        row.run(token)
        assert row.output is not None
        following.arrays.activation[:] = row.output
        passed.append(bytes(row.output))
    rows[-1].run(token)
    return passed


def decode_through(chain: ContextChain, token: int, position: int) -> list[bytes]:
    """The same by batches."""
    entering: bytearray | None = None
    passed = []
    for context in chain.contexts:
        part = BatchPart(
            sequence=0,
            position=position,
            tokens=[token],
            activation=entering,
            wants_logits=True,
        )
        context.trim(0, position)
        entering = context.decode([part])
        passed.append(b"" if entering is None else bytes(entering))
    return passed[:-1]


def test_a_row_gives_the_bits_that_a_batch_gives(chain: ContextChain) -> None:
    rows, final = rows_of(chain), chain.contexts[-1]
    for position, token in enumerate((5, 300, 5, 0), start=END):
        for row in rows:
            row.arrays.stand_at(position)
        passed = run_through(rows, token)
        logits = final.logits(0).tobytes()
        assert passed == decode_through(chain, token, position)
        assert logits == final.logits(0).tobytes()
    assert rows[-1].output is None, "the final stage passes nothing on"


def test_the_sequence_is_that_of_the_row(chain: ContextChain) -> None:
    first = chain.contexts[0]
    before = [first.length(0), first.length(1)]
    first.decode([BatchPart(sequence=1, position=0, tokens=PROMPT)])
    row_of(first, 1, by_token=True).run(7)
    assert before == [END, 0]
    assert [first.length(0), first.length(1)] == [END, END + 1]


def test_where_python_captures_there_is_no_native_row(tiny: GgufModel) -> None:
    settings = attrs.evolve(SETTINGS, capture="python")
    with ContextChain.of_slices(tiny, (3,), settings) as chain:
        assert native_row(chain.contexts[0], 0, by_token=True) is None


def test_a_batch_behind_a_row_is_captured_for_itself(
    chain: ContextChain, link: tuple[socket.socket, socket.socket]
) -> None:
    """Nothing of the row is left in the capture: neither its buffer nor its socket."""
    first, (ours, theirs) = chain.contexts[0], link
    row = row_of(first, by_token=True)
    row.deliver(bytearray(HEAD), TOKEN_AT, ours.fileno())
    row.run(7)
    assert row.output is not None
    kept = bytes(row.output)
    assert len(theirs.recv(4096)) == row.sent_bytes == len(HEAD) + len(kept)
    assert row.sending_ns > 0
    got = first.decode([BatchPart(sequence=0, position=END + 1, tokens=[8])])
    assert got is not None
    assert bytes(got) != kept
    assert row.output == kept
    assert is_empty(theirs)


FAILURES = {
    1: (KvFullError, "no 1 free cells"),
    2: (AbortedError, "the batch was aborted"),
    -1: (BadBatchError, "llama.cpp refused the batch"),
    -3: (EngineError, "llama_decode answered -3"),
    THREW: (EngineError, "llama.cpp threw"),
}


def answering(row: NativeRow, code: int) -> list[object]:
    """Put a `llama_decode` under a row that only answers; keep what is returned."""
    signature = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, llama().llama_batch)
    decode = signature(lambda _context, _batch: code)
    row._row.decode = address_of(decode)
    return [decode]


@pytest.mark.parametrize("code", FAILURES)
def test_a_row_that_fails_is_the_error_of_a_batch_and_is_not_sent(
    chain: ContextChain, link: tuple[socket.socket, socket.socket], code: int
) -> None:
    kind, text = FAILURES[code]
    drawn: list[int] = []

    def draw(_sampler: int, _context: int, row: int) -> int:
        drawn.append(row)
        return 5

    sample = SAMPLE(draw)
    for row in rows_of(chain):
        with_sampler = SamplerChain(None, chain.contexts[-1])
        row.draw_with(with_sampler)
        row._row.sample = address_of(sample)
        row.deliver(bytearray(HEAD), TOKEN_AT, link[0].fileno())
        kept = answering(row, code)
        with pytest.raises(kind, match=text) as caught:
            row.run(5)
        assert type(caught.value) is kind
        assert row.sent_bytes == 0
        with_sampler.close()
        kept.clear()
    assert drawn == []
    assert is_empty(link[1])


@pytest.mark.parametrize("target", [b"l_out-9", b"ffn_up-1", b"Kcur-1"])
def test_an_output_of_another_shape_is_not_sent(
    chain: ContextChain, link: tuple[socket.socket, socket.socket], target: bytes
) -> None:
    """A tensor that is not there, a longer one, a shorter one."""
    first = chain.contexts[0]
    row = row_of(first, by_token=True)
    row.deliver(bytearray(HEAD), TOKEN_AT, link[0].fileno())
    assert first.capture is not None
    first.capture._state.target = target  # type: ignore[attr-defined]
    with pytest.raises(EngineError, match=r"gave \d+ bytes, 256 were expected"):
        row.run(5)
    assert row.sent_bytes == 0
    assert is_empty(link[1])


def test_a_row_that_delivers_nowhere_does_not_try_to(chain: ContextChain) -> None:
    rows = rows_of(chain)
    greedy = SamplerChain(None, chain.contexts[-1])
    rows[-1].draw_with(greedy)
    for row in rows:
        row.deliver(bytearray(HEAD), TOKEN_AT)
    run_through(rows, 9)
    assert [(row.sent_bytes, row.sending_ns) for row in rows] == [(0, 0)] * 3
    greedy.close()


# ---- drawing -----------------------------------------------------------------------


def test_the_chain_draws_from_the_row(
    chain: ContextChain, link: tuple[socket.socket, socket.socket]
) -> None:
    rows, final = rows_of(chain), chain.contexts[-1]
    greedy = SamplerChain(None, final)
    rows[-1].draw_with(greedy)
    rows[-1].deliver(bytearray(HEAD), TOKEN_AT, link[0].fileno())
    run_through(rows, 9)
    best = int(final.logits(0).argmax())
    word = best.to_bytes(4, "little")
    assert rows[-1].drawn == best
    assert link[1].recv(4096) == b"head" + word + b"and." + word + b"tail"
    greedy.close()


@pytest.mark.parametrize(
    ("answer", "text"), [(-1, "no candidate"), (THREW, "the sampler chain failed: ")]
)
def test_a_chain_that_chooses_nothing_is_said_and_nothing_is_sent(
    chain: ContextChain,
    link: tuple[socket.socket, socket.socket],
    answer: int,
    text: str,
) -> None:
    rows, final = rows_of(chain), chain.contexts[-1]
    greedy, sample = SamplerChain(None, final), SAMPLE(lambda *_words: answer)
    rows[-1].draw_with(greedy)
    rows[-1].deliver(bytearray(HEAD), TOKEN_AT, link[0].fileno())
    rows[-1]._row.sample = address_of(sample)
    run_through(rows, 9)
    with pytest.raises(SamplingError, match=text):
        _token = rows[-1].drawn
    assert rows[-1].sent_bytes == 0
    assert is_empty(link[1])
    greedy.close()


def test_without_a_chain_nobody_draws_and_nothing_is_sent(
    chain: ContextChain, link: tuple[socket.socket, socket.socket]
) -> None:
    """The caller draws, and answers."""
    rows, final = rows_of(chain), chain.contexts[-1]
    greedy, head = SamplerChain(None, final), bytearray(HEAD)
    rows[-1].deliver(head, TOKEN_AT, link[0].fileno())
    for chosen in (greedy, None):
        rows[-1].draw_with(chosen)
        run_through(rows, 9)
        for row in rows:
            row.arrays.stand_at(END + 1)
    assert len(link[1].recv(4096)) == len(HEAD)
    assert is_empty(link[1])
    assert rows[-1].sent_bytes == 0
    assert greedy.draw(0, [*PROMPT, 9, 9]) == int(final.logits(0).argmax())
    greedy.close()
