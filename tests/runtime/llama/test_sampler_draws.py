"""Each draw has the seed of its position; what a block may not say is refused."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.core.generation.draw import DrawSampler, draw_seed
from skippyd.core.wire.sampling import SamplingBlock
from skippyd.runtime.failures import SamplingError
from skippyd.runtime.llama.bindings import address_of, llama
from skippyd.runtime.llama.sampler import SamplerChain
from support.drawing import HISTORY, PLAIN, draws, last_logits


if TYPE_CHECKING:
    from skippyd.runtime.llama.context import StageContext

pytestmark = pytest.mark.native

EVERYTHING = attrs.evolve(
    PLAIN,
    temperature=0.7,
    top_p=0.9,
    top_k=40,
    min_p=0.01,
    presence_penalty=0.1,
    typical_p=0.95,
    top_nsigma=2.0,
    dry_multiplier=0.8,
    xtc_probability=0.5,
    logit_bias=((5, 1.0),),
)


# ---- draws and their seeds ---------------------------------------------------------


def reference_draw(context: StageContext, seed: int, xtc: int | None = None) -> int:
    """One draw by a chain made for it alone with plain llama.cpp calls."""
    chain = llama().llama_sampler_chain_init(
        llama().llama_sampler_chain_default_params()
    )
    if xtc is not None:
        link = llama().llama_sampler_init_xtc(0.5, 0.001, 1, xtc)
        llama().llama_sampler_chain_add(chain, link)
    llama().llama_sampler_chain_add(chain, llama().llama_sampler_init_dist(seed))
    row = len(HISTORY) - 1
    token = int(llama().llama_sampler_sample(chain, context.pointer, row))
    llama().llama_sampler_free(chain)
    return token


def test_each_draw_has_the_seed_of_its_position(context: StageContext) -> None:
    """Contract, "Wire": one seed a draw, from (seed, choice, position, sampler)."""
    expected = [
        reference_draw(context, draw_seed(11, 0, position, DrawSampler.DISTRIBUTION))
        for position in range(len(HISTORY), len(HISTORY) + 12)
    ]
    assert draws(context, PLAIN, 12) == expected
    assert len(set(expected)) > 6


def test_xtc_is_reseeded_apart_from_the_draw(context: StageContext) -> None:
    block = attrs.evolve(PLAIN, xtc_probability=0.5, xtc_threshold=0.001)
    expected = [
        reference_draw(
            context,
            draw_seed(11, 0, position, DrawSampler.DISTRIBUTION),
            draw_seed(11, 0, position, DrawSampler.XTC),
        )
        for position in range(len(HISTORY), len(HISTORY) + 12)
    ]
    assert draws(context, block, 12) == expected
    assert expected != draws(context, PLAIN, 12)


def test_a_chain_that_goes_on_draws_as_one_made_anew(context: StageContext) -> None:
    """Resuming accepts the history first: penalties and draws are the same."""
    block = attrs.evolve(
        EVERYTHING, frequency_penalty=0.8, temperature=1.0, penalty_last_n=16
    )
    row = len(HISTORY) - 1
    going = SamplerChain(block, context)
    tokens = list(HISTORY)
    for _ in range(10):
        tokens.append(going.draw(row, tokens))
    for kept in (1, 4, 9):
        resumed = SamplerChain(block, context)
        told = list(HISTORY) + tokens[len(HISTORY) : len(HISTORY) + kept]
        while len(told) < len(tokens):
            told.append(resumed.draw(row, told))
        assert told == tokens
        resumed.close()
    going.close()


def test_a_rewound_chain_forgets_what_it_accepted(context: StageContext) -> None:
    block = attrs.evolve(PLAIN, presence_penalty=5.0)
    row = len(HISTORY) - 1
    chain = SamplerChain(block, context)
    first = chain.draw(row, HISTORY)
    for other in ([*HISTORY, 50, 51], [*HISTORY, first]):
        chain.draw(row, other)
        chain.rewind()
        assert chain.draw(row, HISTORY) == first
    chain.draw(row, [*HISTORY, 50])  # another token than the drawn one was fed
    fresh = SamplerChain(block, context)
    told = [*HISTORY, 50, 51]
    assert chain.draw(row, told) == fresh.draw(row, told)
    fresh.close()
    chain.close()
    chain.close()


# ---- draws by native code ------------------------------------------------------------


@pytest.mark.parametrize(
    "block", [None, PLAIN, attrs.evolve(EVERYTHING, presence_penalty=5.0)]
)
def test_native_code_draws_from_a_chain_that_is_due_what_the_chain_would(
    context: StageContext, block: SamplingBlock | None
) -> None:
    row = len(HISTORY) - 1
    here, there = SamplerChain(block, context), SamplerChain(block, context)
    tokens = [*HISTORY, here.draw(row, HISTORY)]
    assert there.draw(row, HISTORY) == tokens[-1]
    signature = ctypes.CFUNCTYPE(
        ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32
    )
    sample = signature(address_of(llama()._lib.llama_sampler_sample))
    for _ in range(8):
        assert there.due(len(tokens)) == tokens[-1]
        there.reseed(len(tokens))
        drawn = sample(there.address, context.pointer, row)
        there.drew(drawn)
        assert drawn == here.draw(row, tokens)
        tokens.append(drawn)
    assert there.draw(row, tokens) == here.draw(row, tokens)
    here.close()
    there.close()


def test_a_chain_is_not_due_unless_it_knows_the_token_before(
    context: StageContext,
) -> None:
    chain, row = SamplerChain(PLAIN, context), len(HISTORY) - 1
    length = len(HISTORY) + 1
    assert chain.due(length) is None, "it has accepted nothing"
    drawn = chain.draw(row, HISTORY)
    assert chain.due(length + 1) is None
    assert chain.due(length - 1) is None
    assert chain.due(length) == drawn
    chain.rewind()
    assert chain.due(length) is None
    chain.draw(row, HISTORY)
    assert chain.due(length) == drawn
    chain.close()


def test_a_chain_reseeded_in_vain_draws_as_one_that_was_not(
    context: StageContext,
) -> None:
    """Another token was fed than the one drawn: it catches up as ever."""
    block = attrs.evolve(EVERYTHING, presence_penalty=5.0)
    row, told = len(HISTORY) - 1, [*HISTORY, 50]
    chain, fresh = SamplerChain(block, context), SamplerChain(block, context)
    drawn = chain.draw(row, HISTORY)
    assert chain.due(len(told)) == drawn != 50
    chain.reseed(len(told))
    assert chain.draw(row, told) == fresh.draw(row, told)
    chain.close()
    fresh.close()


# ---- what is refused ---------------------------------------------------------------

NAN, INFINITE = math.nan, math.inf
REFUSED = {
    "mirostat": (attrs.evolve(PLAIN, mirostat_mode=1), "mirostat is not supported yet"),
    "unknown name": (
        attrs.evolve(PLAIN, samplers=("top_k", "luck")),
        "unknown sampler 'luck'; known: penalties, dry, ",
    ),
    "bias above": (
        attrs.evolve(PLAIN, logit_bias=((264, 1.0),)),
        r"logit_bias names a token outside 0\.\.263",
    ),
    "bias below": (attrs.evolve(PLAIN, logit_bias=((-1, 1.0),)), "outside"),
    "bias nan": (attrs.evolve(PLAIN, logit_bias=((4, NAN),)), "token 4 is nan"),
    "bias inf": (attrs.evolve(PLAIN, logit_bias=((4, INFINITE),)), "token 4 is inf"),
    "temperature": (attrs.evolve(PLAIN, temperature=NAN), "temperature is nan"),
    "top_p": (attrs.evolve(PLAIN, top_p=INFINITE), "top_p is inf; it has to be finite"),
    "penalty": (
        attrs.evolve(PLAIN, frequency_penalty=-INFINITE),
        "frequency_penalty is -inf",
    ),
    "repeat": (attrs.evolve(PLAIN, repeat_penalty=0.0), r"repeat_penalty is 0\.0"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_block_that_is_not_served_is_refused_by_name(
    context: StageContext, what: str
) -> None:
    block, words = REFUSED[what]
    with pytest.raises(SamplingError, match=words.replace("finite", "a finite")):
        SamplerChain(block, context)


def test_a_token_may_be_forbidden_for_ever(context: StageContext) -> None:
    best = int(last_logits(context).argmax())
    block = attrs.evolve(
        PLAIN, temperature=0.0, logit_bias=((best, -INFINITE), (3, -100.0))
    )
    assert draws(context, block)[0] != best


EXTREMES = [
    {"top_k": -5},
    {"top_k": 2**31 - 1},
    {"top_p": -1.0},
    {"top_p": 0.0},
    {"min_p": 9.0},
    {"typical_p": 0.0},
    {"top_nsigma": 1e-30},
    {"temperature": 3e38},
    {"temperature": 1e-38},
    {"dynatemp_range": 1e30},
    {"xtc_probability": 2.0, "xtc_threshold": -1.0},
    {"frequency_penalty": 3e38},
    {"repeat_penalty": 1e-30, "penalty_last_n": 2**31 - 1},
    {"dry_multiplier": 1.0, "dry_penalty_last_n": 2**31 - 1},
    {"dry_multiplier": 1.0, "dry_base": 0.0, "dry_allowed_length": -9},
    {"dry_multiplier": 1.0, "dry_sequence_breakers": ()},
]


@pytest.mark.parametrize("values", EXTREMES)
def test_extreme_values_draw_a_token_of_the_vocabulary(
    context: StageContext, values: dict[str, object]
) -> None:
    """They come from the wire: no size is allocated by them, no process ends."""
    block = SamplingBlock(**{"flags": 1, "seed": 2, **values})  # type: ignore[arg-type]
    assert all(0 <= token < 264 for token in draws(context, block, 3))
