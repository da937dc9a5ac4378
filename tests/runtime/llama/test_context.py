"""A context computes what plain llama.cpp computes, and refuses bad batches by type."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pytest

from skippyd.errors import ModelError
from skippyd.model.slicing import slice_model
from skippyd.runtime.failures import (
    AbortedError,
    BadBatchError,
    EngineError,
    KvFullError,
)
from skippyd.runtime.llama.batch import BatchPart
from skippyd.runtime.llama.context import StageContext
from skippyd.runtime.llama.model import load_slice
from skippyd.runtime.settings import EngineSettings
from support.engine_chain import ContextChain, random_history
from support.random_models import ZOO


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.settings import CaptureChoice, FlashAttention

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(ctx_size=256, lane_count=4)
TOKENS = 320
PROMPT = [int(t) for t in np.random.default_rng(3).integers(0, TOKENS, 40)]


def rows_of(chain: ContextChain) -> list[bytes]:
    """Logits of a prompt in chunks of 16 and of eight greedy steps."""
    rows = []
    for start in range(0, len(PROMPT), 16):
        chunk = PROMPT[start : start + 16]
        part = BatchPart(sequence=0, position=start, tokens=chunk, wants_logits=True)
        rows += chain.decode([part])
    for position in range(len(PROMPT), len(PROMPT) + 8):
        token = int(rows[-1].argmax())
        part = BatchPart(
            sequence=0, position=position, tokens=[token], wants_logits=True
        )
        rows += chain.decode([part])
    return [row.tobytes() for row in rows]


@pytest.mark.parametrize("capture", ["native", "python"])
@pytest.mark.parametrize("cuts", [(), (2,), (1, 4)])
def test_a_streamed_or_written_slice_is_the_plain_file_bit_for_bit(
    tiny: GgufModel, cuts: tuple[int, ...], capture: CaptureChoice
) -> None:
    """The python capture goes with the slice written into memory."""
    settings = attrs.evolve(SETTINGS, capture=capture)
    with ContextChain.unsplit(tiny.path, SETTINGS) as whole:
        expected = rows_of(whole)
    with ContextChain.of_slices(tiny, cuts, settings) as chain:
        assert rows_of(chain) == expected
        names = [c.capture.name for c in chain.contexts if c.capture is not None]
    assert names == [capture] * len(cuts)
    assert len(set(expected)) == len(expected)


CACHES: list[tuple[str, str, FlashAttention]] = [
    ("f16", "f16", "enabled"),
    ("f16", "f16", "disabled"),
    ("q8_0", "q8_0", "enabled"),
    ("q8_0", "f16", "disabled"),
    ("f32", "f32", "enabled"),
    ("f32", "f32", "disabled"),
    ("bf16", "q4_0", "enabled"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "values", "flash"), CACHES)
@pytest.mark.parametrize("name", ["llama-untied", "qwen3", "gemma3"])
def test_sequences_batched_together_are_exact_at_random_cuts(
    zoo: dict[str, GgufModel], name: str, keys: str, values: str, flash: FlashAttention
) -> None:
    """Several sequences in one unified cache: rewound, copied, cleared alike."""
    model, vocabulary = zoo[name], ZOO[name].token_count
    settings = attrs.evolve(
        SETTINGS, cache_type_k=keys, cache_type_v=values, flash_attn_type=flash
    )
    rng = np.random.default_rng(len(keys) + len(flash))
    for seed in (1, 2):
        with ContextChain.unsplit(model.path, settings) as whole:
            expected = random_history(seed, vocabulary, whole)
        cuts = sorted({int(c) for c in rng.integers(1, model.layer_count, 2)})
        with ContextChain.of_slices(model, cuts, settings) as chain:
            found = random_history(seed, vocabulary, chain)
        assert [row.tobytes() for row in found] == [row.tobytes() for row in expected]
        assert len({row.tobytes() for row in expected}) == len(expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_every_random_model_is_exact_at_every_cut(
    zoo: dict[str, GgufModel], name: str
) -> None:
    model = zoo[name]
    with ContextChain.unsplit(model.path, SETTINGS) as whole:
        expected = rows_of(whole)
    for cut in range(1, model.layer_count):
        with ContextChain.of_slices(model, (cut,), SETTINGS) as chain:
            assert rows_of(chain) == expected


def test_cache_types_change_the_logits(zoo: dict[str, GgufModel]) -> None:
    """So that the comparison above compares something.

    (Flash attention computes in f16, so f32 beside it is no other case.)
    """
    seen = set()
    caches: list[tuple[str, FlashAttention]] = [
        ("f16", "enabled"),
        ("q8_0", "enabled"),
        ("f16", "disabled"),
        ("f32", "disabled"),
    ]
    for keys, flash in caches:
        settings = attrs.evolve(SETTINGS, cache_type_k=keys, flash_attn_type=flash)
        with ContextChain.unsplit(zoo["llama-untied"].path, settings) as whole:
            seen.add(rows_of(whole)[-1])
    assert len(seen) == 4


def test_a_cache_that_llama_cpp_refuses_is_a_model_error(tiny: GgufModel) -> None:
    settings = attrs.evolve(SETTINGS, cache_type_v="q8_0", flash_attn_type="disabled")
    with pytest.raises(ModelError, match=r"refused the context.*q8_0.*disabled"):
        ContextChain.unsplit(tiny.path, settings)


def test_a_batch_above_the_micro_batch_is_captured_whole(tiny: GgufModel) -> None:
    """The capture fires once for each micro-batch: 40 rows in five of 8."""
    settings = attrs.evolve(SETTINGS, n_ubatch=8)
    part = BatchPart(sequence=0, position=0, tokens=PROMPT, wants_logits=True)
    with ContextChain.unsplit(tiny.path, settings) as whole:
        [expected] = whole.decode([part])
    with ContextChain.of_slices(tiny, (2, 3), settings) as chain:
        [found] = chain.decode([part])
    assert found.tobytes() == expected.tobytes()


def test_a_batch_may_be_smaller_than_the_lanes(tiny: GgufModel) -> None:
    """llama.cpp would end the process: one row of every sequence has to fit."""
    settings = attrs.evolve(SETTINGS, n_batch=1, n_ubatch=1, lane_count=64)
    found = []
    for lanes in (1, 64):
        settings = attrs.evolve(settings, lane_count=lanes)
        with ContextChain.of_slices(tiny, (3,), settings) as chain:
            parts = [
                attrs.evolve(by_token(position=p, tokens=[token]), wants_logits=True)
                for p, token in enumerate(PROMPT[:5])
            ]
            found.append([chain.decode([part])[0].tobytes() for part in parts])
    assert found[0] == found[1]


# ---- what is refused -------------------------------------------------------------


@pytest.fixture
def first(tiny: GgufModel) -> Iterator[StageContext]:
    """The first three layers: token ids in, activations out."""
    described = slice_model(tiny, 0, 3)
    with (
        load_slice(described, SETTINGS) as loaded,
        StageContext(
            loaded, SETTINGS, capture_tensor=described.capture_tensor
        ) as context,
    ):
        yield context


@pytest.fixture
def final(tiny: GgufModel) -> Iterator[StageContext]:
    """The last three layers: activations in, logits out."""
    with (
        load_slice(slice_model(tiny, 3, 6), SETTINGS) as loaded,
        StageContext(loaded, SETTINGS, capture_tensor=None) as context,
    ):
        yield context


def by_token(
    *, sequence: int = 0, position: int = 0, tokens: Sequence[int] = (1, 2, 3)
) -> BatchPart:
    return BatchPart(sequence=sequence, position=position, tokens=tokens)


ROW = bytes(4 * 64)

BAD_TOKEN_BATCHES = {
    "no parts": ([], "the batch is empty"),
    "no rows": ([by_token(tokens=[])], "0 rows at position 0"),
    "token above": ([by_token(tokens=[1, 320])], r"token 320 is outside 0\.\.319"),
    "token below": ([by_token(tokens=[-1, 5])], r"token -1 is outside"),
    "token too big": ([by_token(tokens=[2**40])], "is outside"),
    "sequence above": ([by_token(sequence=4)], r"sequence 4 is outside 0\.\.3"),
    "sequence below": ([by_token(sequence=-1)], "sequence -1 is outside"),
    "position below": ([by_token(position=-1)], "3 rows at position -1"),
    "position too big": ([by_token(position=2**31 - 2)], "3 rows at position"),
    "gap": ([by_token(position=9)], "refused the batch"),
    "twice the same": ([by_token(), by_token()], "refused the batch"),
    "too many": ([by_token(tokens=[1] * 65)], "batch of 65 rows is above n_batch 64"),
    "mixed": (
        [by_token(), BatchPart(sequence=1, position=0, activation=ROW)],
        "mixes token ids and activations",
    ),
}


@pytest.mark.parametrize("what", BAD_TOKEN_BATCHES)
def test_a_bad_batch_is_named_and_leaves_the_context_usable(
    first: StageContext, what: str
) -> None:
    parts, words = BAD_TOKEN_BATCHES[what]
    held = by_token(tokens=[7, 8])
    first.decode([held])
    if what in {"gap", "twice the same"}:
        parts = [attrs.evolve(part, position=part.position + 2) for part in parts]
    with pytest.raises(BadBatchError, match=words):
        first.decode(parts)
    assert first.length(0) == 2
    rows = first.decode([by_token(position=2)])
    assert rows is not None
    first.clear()
    again = first.decode([by_token(tokens=[7, 8, 1, 2, 3])])
    assert again is not None
    assert again[2 * len(again) // 5 :] == rows


@pytest.mark.parametrize(
    ("activation", "tokens", "words"),
    [
        (ROW[:-1], (), "255 bytes is no multiple of the width 64 x 4"),
        (ROW + b"1234", (), "260 bytes"),
        (b"", (), "0 rows"),
        (ROW * 2, (1, 2, 3), "2 rows of activation with 3 tokens"),
    ],
)
def test_an_activation_of_an_odd_size_is_refused(
    final: StageContext, activation: bytes, tokens: tuple[int, ...], words: str
) -> None:
    part = BatchPart(sequence=0, position=0, tokens=tokens, activation=activation)
    with pytest.raises(BadBatchError, match=words):
        final.decode([part])
    whole = BatchPart(sequence=0, position=0, activation=ROW, wants_logits=True)
    final.decode([whole])
    assert final.logits(0).shape == (TOKENS,)


def test_logits_of_a_row_that_was_not_flagged_are_an_error(final: StageContext) -> None:
    final.decode([BatchPart(sequence=0, position=0, activation=ROW)])
    with pytest.raises(EngineError, match="row 0 of the last batch has no logits"):
        final.logits(0)


def test_a_full_cache_is_its_own_error_and_changes_nothing(first: StageContext) -> None:
    """256 cells: four batches of 64 fit, one more row of anyone does not."""
    for index in range(4):
        first.decode(
            [BatchPart(sequence=0, position=64 * index, tokens=[index + 1] * 64)]
        )
    for _ in range(3):
        with pytest.raises(KvFullError, match="no 1 free cells in the KV cache of 256"):
            first.decode([BatchPart(sequence=1, position=0, tokens=[5])])
    assert (first.length(0), first.length(1)) == (256, 0)
    first.trim(0, 200)
    assert first.decode([BatchPart(sequence=1, position=0, tokens=[5])]) is not None
    assert first.decode([BatchPart(sequence=0, position=200, tokens=[5])]) is not None


def test_batches_larger_than_the_cache_are_never_allocated(tiny: GgufModel) -> None:
    settings = attrs.evolve(SETTINGS, n_batch=2**31 - 1)
    with ContextChain.of_slices(tiny, (), settings) as chain:
        part = by_token(tokens=[1] * 257)
        with pytest.raises(BadBatchError, match="257 rows is above n_batch 256"):
            chain.decode([part])


# ---- abort -----------------------------------------------------------------------


@pytest.mark.parametrize("capture", ["native", "python"])
def test_the_abort_flag_ends_batches_until_it_is_lowered(
    tiny: GgufModel, capture: CaptureChoice
) -> None:
    settings = attrs.evolve(SETTINGS, capture=capture)
    with ContextChain.of_slices(tiny, (3,), settings) as chain:
        context = chain.contexts[0]
        before = context.decode([by_token()])
        context.abort.raise_()
        with pytest.raises(AbortedError):
            context.decode([by_token(position=3)])
        context.abort.lower()
        context.trim(0, 0)
        after = context.decode([by_token()])
        assert before is not None
        assert after is not None
        assert after == before


@pytest.mark.slow
def test_an_abort_ends_a_batch_that_runs(smollm2_path: Path) -> None:
    """A batch of 2000 rows of the real model takes seconds; the abort, a moment."""
    settings = attrs.evolve(SETTINGS, ctx_size=2048, n_batch=2048, n_ubatch=2048)
    with ContextChain.unsplit(smollm2_path, settings) as whole:
        context = whole.contexts[0]
        timer = threading.Timer(0.3, context.abort.raise_)
        timer.start()
        begun = time.monotonic()
        part = BatchPart(sequence=0, position=0, tokens=list(range(2000)))
        with pytest.raises(AbortedError):
            context.decode([part])
        took = time.monotonic() - begun
        timer.join()
        context.abort.lower()
        context.trim(0, 0)
        assert context.length(0) == 0
        short = attrs.evolve(part, tokens=[1, 2], wants_logits=True)
        context.decode([short])
        assert context.logits(1).std() > 0.1
    assert took < 3.0
