"""Stage 0 in this process and stage 1 in its own decode what the whole model decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.proving.bench_split import SplitPair, split_pair
from skippyd.proving.chain import ChainPlan, LocalChain
from skippyd.runtime.unsplit import UnsplitModel


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel

pytestmark = [
    pytest.mark.native,
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.watchdog(60),
]

PROMPT = [*range(100, 130)]


def decoded(pair: SplitPair) -> tuple[list[int], list[float]]:
    """What a pair decodes after the prompt, and the gaps it tells."""
    tokens = [PROMPT[-1]]
    pair.begin(PROMPT[:-1])
    for _ in range(8):
        tokens.append(pair.decode(tokens[-1]))
    return tokens[1:], pair.end()


def test_a_pair_decodes_what_the_whole_model_decodes(mute: GgufModel) -> None:
    plan = ChainPlan(
        model_path=mute.path, model_id="m", bounds=(0, 3, 6), ctx_size=256, lane_count=1
    )
    with UnsplitModel(mute.path, plan.settings()) as whole:
        rows = whole.generate(PROMPT, chunk=plan.chunk, limit=8, sampling=None)
        expected = [row.token for row in rows]
    with LocalChain.start(plan) as chain, split_pair(chain, mute) as pair:
        first, first_gaps_us = decoded(pair)
        again, gaps_us = decoded(pair)
        messages = [stage.status()["messages"] for stage in chain.stages]
    assert first == again == expected
    assert len(set(expected)) > 1
    assert len(first_gaps_us) == len(gaps_us) == 8
    assert min(first_gaps_us + gaps_us) > 0
    assert messages[0] == 0  # stage 0 of the chain is not what was measured
    assert isinstance(messages[1], int)
    assert messages[1] >= 2 * (1 + 8)
