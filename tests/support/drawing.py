"""Drawing from one row of logits that a small model has computed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from skippyd.core.wire.sampling import SamplingBlock
from skippyd.runtime.llama.batch import BatchPart
from skippyd.runtime.llama.sampler import SamplerChain
from skippyd.runtime.settings import EngineSettings
from support.engine_chain import ContextChain


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.llama.context import StageContext


SETTINGS = EngineSettings(ctx_size=256)
HISTORY = [int(t) for t in np.random.default_rng(4).integers(32, 120, 24)]
PLAIN = SamplingBlock(flags=1, seed=11, temperature=1.0)


@contextmanager
def context_after_history(model: GgufModel) -> Iterator[StageContext]:
    """A context that has read the history: its last row is to be drawn from."""
    with ContextChain.of_slices(model, (), SETTINGS) as chain:
        part = BatchPart(sequence=0, position=0, tokens=HISTORY, wants_logits=True)
        chain.decode([part])
        yield chain.contexts[0]


def draws(
    context: StageContext,
    block: SamplingBlock | None,
    count: int = 1,
    history: Sequence[int] = (*HISTORY,),
) -> list[int]:
    """Draw from the last row as if it stood at `count` positions one after another."""
    found = []
    for extra in range(count):
        chain = SamplerChain(block, context)
        found.append(chain.draw(len(HISTORY) - 1, [*history, *([0] * extra)]))
        chain.close()
    return found


def last_logits(context: StageContext) -> npt.NDArray[np.float64]:
    """Logits of the last row, as numpy computes."""
    row: npt.NDArray[np.float64] = context.logits(len(HISTORY) - 1).astype(np.float64)
    return row
