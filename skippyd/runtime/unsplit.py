"""The reference: the original file through plain llama.cpp, nothing of ours in it.

No slice, no stream, no capture: the file is opened as any program opens it. It is fed
the way a chain is fed (the prompt but its last token in chunks, then one token a
batch) under the same settings, since each of those moves the logits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

import attrs

from skippyd.runtime.llama.batch import BatchPart
from skippyd.runtime.llama.context import StageContext
from skippyd.runtime.llama.model import load_file
from skippyd.runtime.llama.sampler import SamplerChain
from skippyd.runtime.llama.vocabulary import LlamaVocabulary


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np

    from skippyd.core.wire.sampling import SamplingBlock
    from skippyd.runtime.settings import EngineSettings

    Row = np.ndarray[tuple[int], np.dtype[np.float32]]


@attrs.define(kw_only=True)
class PredictedRow:
    """One row the unsplit model predicted.

    Args:
        position: Position of the token that was fed.
        logits: Its logits, whole vocabulary.
        token: The token drawn from them.
        elapsed_ns: Time of the batch and the draw.
    """

    position: int
    logits: Row
    token: int
    elapsed_ns: int


class UnsplitModel:
    """A whole model for comparison.

    Args:
        path: The original file.
        settings: The same as the stages have.
    """

    def __init__(self, path: Path, settings: EngineSettings) -> None:
        self._model = load_file(path, settings)
        self._context = StageContext(self._model, settings, capture_tensor=None)
        self.vocabulary = LlamaVocabulary(self._model)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._context.close()
        self._model.close()

    def generate(
        self,
        prompt: Sequence[int],
        *,
        chunk: int,
        limit: int,
        sampling: SamplingBlock | None,
    ) -> Iterator[PredictedRow]:
        """Predict up to `limit` tokens after the prompt, as a chain would.

        Args:
            prompt: Token ids, at least one.
            chunk: Prefill chunk in tokens.
            limit: Rows to predict.
            sampling: How to draw; None is greedy.
        """
        self._context.clear()
        for start in range(0, len(prompt) - 1, chunk):
            self._feed(prompt[start : min(start + chunk, len(prompt) - 1)], start)
        tokens = list(prompt)
        chain = SamplerChain(sampling, self._context)
        try:
            for _ in range(limit):
                begun = time.perf_counter_ns()
                position = len(tokens) - 1
                self._feed(tokens[-1:], position, wants_logits=True)
                logits = self._context.logits(0)
                token = chain.draw(0, tokens)
                elapsed = time.perf_counter_ns() - begun
                yield PredictedRow(
                    position=position, logits=logits, token=token, elapsed_ns=elapsed
                )
                tokens.append(token)
        finally:
            chain.close()

    def _feed(
        self, tokens: Sequence[int], position: int, *, wants_logits: bool = False
    ) -> None:
        part = BatchPart(
            sequence=0, position=position, tokens=tokens, wants_logits=wants_logits
        )
        self._context.decode([part])
