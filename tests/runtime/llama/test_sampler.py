"""The sampler chain: every name, every draw's seed, and what is refused.

A chain draws from logits that llama.cpp computed; what it should draw is computed here
from those logits with numpy.
"""

from __future__ import annotations

import collections
import math
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pytest

from skippyd.core.wire.sampling import SamplingBlock
from skippyd.runtime.llama.bindings import llama
from skippyd.runtime.llama.sampler import SamplerChain
from support.drawing import HISTORY, PLAIN, draws, last_logits
from support.tiny_tokenizer import token_id


if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from skippyd.runtime.llama.context import StageContext

    Rows = npt.NDArray[np.float32]

pytestmark = pytest.mark.native


def probabilities(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shares = np.exp(logits - logits.max())
    scaled: npt.NDArray[np.float64] = shares / shares.sum()
    return scaled


def names(context: StageContext, block: SamplingBlock | None) -> list[str]:
    """The samplers of the chain that is built, by llama.cpp's own names."""
    chain = SamplerChain(block, context)
    count = llama().llama_sampler_chain_n(chain._chain)
    found = [
        llama()
        .llama_sampler_name(llama().llama_sampler_chain_get(chain._chain, i))
        .decode()
        for i in range(count)
    ]
    chain.close()
    return found


# ---- which samplers ----------------------------------------------------------------


def test_no_block_and_a_disabled_one_are_greedy(context: StageContext) -> None:
    best = int(last_logits(context).argmax())
    for block in (None, SamplingBlock(flags=0, temperature=1.0, seed=5)):
        assert names(context, block) == ["greedy"]
        assert draws(context, block, 3) == [best] * 3


def test_neutral_links_are_left_out(context: StageContext) -> None:
    assert names(context, PLAIN) == ["dist"]
    assert names(context, attrs.evolve(PLAIN, temperature=0.0)) == ["greedy"]


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
IN_ORDER = [
    "logit-bias",
    "penalties",
    "dry",
    "top-n-sigma",
    "top-k",
    "typical",
    "top-p",
    "min-p",
    "xtc",
    "temp-ext",
    "dist",
]


def test_every_sampler_is_there_in_the_blocks_order(context: StageContext) -> None:
    assert names(context, EVERYTHING) == IN_ORDER
    backwards = attrs.evolve(EVERYTHING, samplers=EVERYTHING.samplers[::-1])
    assert names(context, backwards) == ["logit-bias", *IN_ORDER[-2:0:-1], "dist"]


def test_a_drawn_token_leaves_the_chain_as_it_was(context: StageContext) -> None:
    """Reseeding takes random samplers out; the others keep their places."""
    chain = SamplerChain(
        attrs.evolve(EVERYTHING, samplers=("xtc", "top_k", "min_p")), context
    )
    chain.draw(len(HISTORY) - 1, HISTORY)
    found = [
        llama().llama_sampler_name(llama().llama_sampler_chain_get(chain._chain, i))
        for i in range(llama().llama_sampler_chain_n(chain._chain))
    ]
    assert found == [b"logit-bias", b"xtc", b"top-k", b"min-p", b"dist"]
    chain.close()


def test_a_name_left_out_is_not_applied(context: StageContext) -> None:
    block = attrs.evolve(EVERYTHING, samplers=("top_k", "temperature"))
    assert names(context, block) == ["logit-bias", "top-k", "temp-ext", "dist"]


# ---- what each one keeps -----------------------------------------------------------


def top(logits: npt.NDArray[np.float64], count: int) -> set[int]:
    return {int(token) for token in np.argsort(-logits)[:count]}


def nucleus(logits: npt.NDArray[np.float64], share: float) -> set[int]:
    order = np.argsort(-logits)
    running = np.cumsum(probabilities(logits)[order])
    return {int(t) for t in order[: int(np.searchsorted(running, share)) + 1]}


def above_min_p(logits: npt.NDArray[np.float64], share: float) -> set[int]:
    kept = logits >= logits.max() + math.log(share)
    return {int(token) for token in np.flatnonzero(kept)}


def within_sigma(logits: npt.NDArray[np.float64], sigmas: float) -> set[int]:
    kept = logits >= logits.max() - sigmas * logits.std()
    return {int(token) for token in np.flatnonzero(kept)}


def typical(logits: npt.NDArray[np.float64], share: float) -> set[int]:
    shares = probabilities(logits)
    surprise = -np.log(shares)
    entropy = float((shares * surprise).sum())
    order = np.argsort(np.abs(surprise - entropy), kind="stable")
    running = np.cumsum(shares[order])
    return {int(t) for t in order[: int(np.searchsorted(running, share)) + 1]}


KEEPERS: dict[
    str, tuple[SamplingBlock, Callable[[npt.NDArray[np.float64]], set[int]]]
] = {
    "top_k": (attrs.evolve(PLAIN, top_k=3), lambda rows: top(rows, 3)),
    "top_p": (attrs.evolve(PLAIN, top_p=0.2), lambda rows: nucleus(rows, 0.2)),
    "min_p": (attrs.evolve(PLAIN, min_p=0.4), lambda rows: above_min_p(rows, 0.4)),
    "top_n_sigma": (
        attrs.evolve(PLAIN, top_nsigma=2.6),
        lambda rows: within_sigma(rows, 2.6),
    ),
    "typical_p": (
        attrs.evolve(PLAIN, typical_p=0.05),
        lambda rows: typical(rows, 0.05),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KEEPERS)
def test_a_filter_keeps_what_its_definition_keeps(
    context: StageContext, name: str
) -> None:
    block, keeps = KEEPERS[name]
    expected = keeps(last_logits(context))
    assert 1 < len(expected) < 40
    found = set(draws(context, attrs.evolve(block, samplers=(name,)), 180))
    assert found <= expected
    assert len(found) > 0.6 * len(expected)
    assert not set(draws(context, PLAIN, 60)) <= expected


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
def test_temperature_flattens_and_sharpens(
    context: StageContext, temperature: float
) -> None:
    """Of 400 draws, the best four come about as often as their probability says."""
    block = attrs.evolve(PLAIN, temperature=temperature)
    shares = probabilities(last_logits(context) / temperature)
    count = collections.Counter(draws(context, block, 400))
    best = np.argsort(-shares)[:4]
    expected = float(shares[best].sum())
    found = sum(count[int(token)] for token in best) / 400
    assert found == pytest.approx(expected, abs=0.09)


def test_xtc_takes_the_best_away(context: StageContext) -> None:
    block = attrs.evolve(PLAIN, top_k=8, xtc_probability=1.0, xtc_threshold=0.001)
    best = top(last_logits(context), 7)
    assert not best & set(draws(context, block, 20))


def test_a_bias_forces_and_forbids(context: StageContext) -> None:
    forced = attrs.evolve(PLAIN, logit_bias=((7, 100.0),))
    assert draws(context, forced, 5) == [7] * 5
    best = int(last_logits(context).argmax())
    forbidden = attrs.evolve(PLAIN, temperature=0.0, logit_bias=((best, -100.0),))
    second = int(np.argsort(-last_logits(context))[1])
    assert draws(context, forbidden) == [second]


def test_ignore_eos_never_ends(context: StageContext) -> None:
    ends = [token_id("<|im_end|>"), token_id("<|endoftext|>")]
    ended = attrs.evolve(
        PLAIN, temperature=0.0, logit_bias=tuple((end, 90.0) for end in ends)
    )
    assert draws(context, ended)[0] in ends
    [token] = draws(context, attrs.evolve(ended, ignore_eos=1))
    vocabulary = context.model.vocabulary_pointer
    assert not llama().llama_vocab_is_eog(vocabulary, token)


@pytest.mark.parametrize(
    "penalty",
    [
        {"repeat_penalty": 50.0},
        {"presence_penalty": 90.0},
        {"frequency_penalty": 90.0},
    ],
)
def test_penalties_see_the_prompt(
    context: StageContext, penalty: dict[str, float]
) -> None:
    """The likeliest token is penalised once it stands anywhere before."""
    best = int(last_logits(context).argmax())
    greedy = SamplingBlock(flags=1, temperature=0.0, penalty_last_n=-1)
    block = attrs.evolve(
        greedy,
        repeat_penalty=penalty.get("repeat_penalty", 1.0),
        presence_penalty=penalty.get("presence_penalty", 0.0),
        frequency_penalty=penalty.get("frequency_penalty", 0.0),
    )
    without = [t for t in HISTORY if t != best]
    assert draws(context, block, history=without) == [best]
    assert draws(context, block, history=[best, *without])[0] != best
    near = attrs.evolve(block, penalty_last_n=4)
    assert draws(context, near, history=[best, *without]) == [best]
    none = attrs.evolve(block, penalty_last_n=0)
    assert draws(context, none, history=[*without, best]) == [best]


def test_dry_breaks_a_repetition(context: StageContext) -> None:
    best = int(last_logits(context).argmax())
    loop = [101, 102, 103, best] * 3 + [101, 102, 103]
    greedy = SamplingBlock(flags=1, temperature=0.0)
    dry = attrs.evolve(greedy, dry_multiplier=50.0, dry_penalty_last_n=-1)
    assert draws(context, greedy, history=loop) == [best]
    assert draws(context, dry, history=loop)[0] != best
