"""The reference predicts what a bare loop over llama.cpp predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from skippyd.core.wire.sampling import SamplingBlock
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.unsplit import UnsplitModel
from support.raw_chain import Settings, random_prompt, run_unsplit


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(
    ctx_size=256, flash_attn_type="enabled", n_batch=16, n_ubatch=16
)


def test_its_logits_are_those_of_plain_llama_cpp(zoo: dict[str, GgufModel]) -> None:
    """Compared with code that shares nothing with the engine."""
    model = zoo["gemma3"]
    prompt = random_prompt(320, length=33)  # two chunks and a row of its own
    shared = Settings(chunk=16, decoded=6)
    expected = run_unsplit(model.path, prompt, shared)
    with UnsplitModel(model.path, SETTINGS) as unsplit:
        rows = list(unsplit.generate(prompt, chunk=16, limit=6, sampling=None))
    assert [row.token for row in rows] == list(expected.tokens)[:6]
    found = np.stack([row.logits for row in rows])
    assert found.tobytes() == np.ascontiguousarray(expected.logits[2:8]).tobytes()


def test_a_second_answer_does_not_see_the_first(tiny: GgufModel) -> None:
    block = SamplingBlock(flags=1, temperature=1.0, seed=5)
    with UnsplitModel(tiny.path, SETTINGS) as unsplit:
        first = [
            (row.position, row.token, row.logits.tobytes())
            for row in unsplit.generate([3, 4, 5], chunk=2, limit=5, sampling=block)
        ]
        list(unsplit.generate([9] * 40, chunk=16, limit=2, sampling=None))
        again = [
            (row.position, row.token, row.logits.tobytes())
            for row in unsplit.generate([3, 4, 5], chunk=2, limit=5, sampling=block)
        ]
    assert first == again
    assert [position for position, _, _ in first] == [2, 3, 4, 5, 6]


def test_a_prompt_of_one_token_has_nothing_to_prefill(tiny: GgufModel) -> None:
    with UnsplitModel(tiny.path, SETTINGS) as unsplit:
        [row] = unsplit.generate([7], chunk=4, limit=1, sampling=None)
    assert row.position == 0
    assert row.elapsed_ns > 0
