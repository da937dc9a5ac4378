"""Stages of a model in one process, each with a context of its own, fed by hand."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import attrs
import numpy as np

from skippyd.model.slicing import slice_model
from skippyd.runtime.llama.batch import BatchPart
from skippyd.runtime.llama.context import StageContext
from skippyd.runtime.llama.model import load_file, load_slice


if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.llama.model import LlamaModel
    from skippyd.runtime.settings import EngineSettings

    Row = np.ndarray[tuple[int], np.dtype[np.float32]]


class ContextChain:
    """Contexts in the order of the chain; one context is the whole model.

    Args:
        contexts: The first takes token ids, the last gives logits.
        owned: Closed with the chain.
    """

    def __init__(self, contexts: Sequence[StageContext], owned: ExitStack) -> None:
        self.contexts = list(contexts)
        self._owned = owned

    @classmethod
    def of_slices(
        cls, model: GgufModel, cuts: Sequence[int], settings: EngineSettings
    ) -> Self:
        """The model cut at these layers, loaded the way a stage loads."""
        bounds = (0, *cuts, model.layer_count)
        with ExitStack() as stack:
            contexts = []
            for start, end in itertools.pairwise(bounds):
                described = slice_model(model, start, end)
                loaded = stack.enter_context(load_slice(described, settings))
                target = None if described.is_final else described.capture_tensor
                contexts.append(_context(stack, loaded, settings, target))
            return cls(contexts, stack.pop_all())

    @classmethod
    def unsplit(cls, path: Path, settings: EngineSettings) -> Self:
        """The original file, opened the plain way."""
        with ExitStack() as stack:
            loaded = stack.enter_context(load_file(path, settings))
            context = _context(stack, loaded, settings, None)
            return cls([context], stack.pop_all())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._owned.close()

    def decode(self, parts: Sequence[BatchPart]) -> list[Row]:
        """Run the parts as one batch on every stage; logits of those that want them."""
        fed = list(parts)
        for context in self.contexts:
            rows = context.decode(fed)
            if rows is not None:
                fed = _with_activations(parts, rows)
        ends = np.cumsum([len(part.tokens) for part in parts])
        final = self.contexts[-1]
        return [
            final.logits(int(end) - 1)
            for part, end in zip(parts, ends, strict=True)
            if part.wants_logits
        ]

    def trim(self, sequence: int, keep: int) -> None:
        """Rewind a sequence on every stage."""
        for context in self.contexts:
            context.trim(sequence, keep)

    def copy(self, source: int, target: int) -> None:
        """Copy a sequence on every stage."""
        for context in self.contexts:
            context.copy(source, target)

    def clear(self) -> None:
        """Forget everything on every stage."""
        for context in self.contexts:
            context.clear()


def _context(
    stack: ExitStack,
    loaded: LlamaModel,
    settings: EngineSettings,
    target: str | None,
) -> StageContext:
    return stack.enter_context(StageContext(loaded, settings, capture_tensor=target))


def _with_activations(parts: Sequence[BatchPart], rows: bytearray) -> list[BatchPart]:
    row_bytes = len(rows) // sum(len(part.tokens) for part in parts)
    fed, at = [], 0
    for part in parts:
        size_bytes = len(part.tokens) * row_bytes
        data = bytes(rows[at : at + size_bytes])
        fed.append(attrs.evolve(part, activation=data))
        at += size_bytes
    return fed


def random_history(seed: int, vocabulary_size: int, chain: ContextChain) -> list[Row]:
    """Three sequences batched together, rewound, copied and cleared as the seed says.

    Returns:
        Logits of the last row of every part of every batch, in order.
    """
    rng = np.random.default_rng(seed)
    lengths = [0, 0, 0, 0]
    seen: list[Row] = []
    for step in range(14):
        parts = []
        for sequence in range(3):
            if step > 0 and rng.random() < 0.2:
                continue
            count = int(rng.integers(6, 20)) if step == 0 else 1
            tokens = [int(t) for t in rng.integers(0, vocabulary_size, count)]
            position = lengths[sequence]
            parts.append(
                BatchPart(
                    sequence=sequence,
                    position=position,
                    tokens=tokens,
                    wants_logits=True,
                )
            )
            lengths[sequence] += count
        if parts:
            seen += chain.decode(parts)
        if step == 5:
            lengths[1] -= 3
            chain.trim(1, lengths[1])
        if step == 8:
            chain.trim(2, 0)
            chain.copy(0, 2)
            lengths[2] = lengths[0]
        if step == 11:
            chain.clear()
            lengths = [0, 0, 0, 0]
    return seen
