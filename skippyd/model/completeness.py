"""Whether a model has what its architecture needs before anyone tries to load it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs

from skippyd.model.architectures import (
    ARCHITECTURES,
    INPUT_EMBEDDING,
    OUTPUT_NORM,
    Architecture,
)
from skippyd.model.gguf_limits import MAX_LAYERS


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.model.gguf_model import GgufModel


BLOCK_NAME = re.compile(r"blk\.(0|[1-9]\d{0,4})\.(.+)")
"""A layer's tensor: its index, then its name within the layer."""

TOKENS_KEY = "tokenizer.ggml.tokens"

_FETCH = "fetch or convert the whole model again"


@attrs.frozen
class BlockTensor:
    """A tensor name taken apart: which layer, and which tensor of it."""

    layer: int
    suffix: str


def block_tensor(name: str) -> BlockTensor | None:
    """Take a layer's tensor name apart; None for a tensor outside the layers."""
    match = BLOCK_NAME.fullmatch(name)
    return BlockTensor(int(match[1]), match[2]) if match else None


def check_complete(model: GgufModel) -> None:
    """Check that there are layers and weights, and all of them.

    For an architecture that is not offered only the counts are checked: its name is
    what refuses it later.

    Raises:
        ModelError: The first thing that is missing.
    """
    if not model.tensors:
        raise model.fail("holds a vocabulary and no weights", "give the whole model")
    architecture = ARCHITECTURES.get(model.architecture)
    if model.entry("block_count") is None and architecture is None:
        return
    layers = model.layer_count
    if not 0 < layers <= MAX_LAYERS:
        raise model.fail(f"has {layers} layers; 1 to {MAX_LAYERS} are read", _FETCH)
    if architecture is not None:
        _check_blocks(model, architecture, layers)
        _check_embedding(model)


def _check_blocks(model: GgufModel, rules: Architecture, layers: int) -> None:
    blocks: list[set[str]] = [set() for _ in range(layers)]
    for tensor in model.tensors:
        found = block_tensor(tensor.name)
        if found is None:
            continue
        if found.layer >= layers:
            raise model.fail(
                f"tensor {tensor.name!r} belongs to a layer past the {layers} that "
                f"{model.key('block_count')} names",
                _FETCH,
            )
        blocks[found.layer].add(found.suffix)
    for layer, suffixes in enumerate(blocks):
        missing = _missing(suffixes, rules)
        if missing is not None:
            raise model.fail(f"tensor 'blk.{layer}.{missing}' is missing", _FETCH)


def _missing(suffixes: set[str], rules: Architecture) -> str | None:
    lacking = sorted(rules.block - suffixes)
    if lacking:
        return lacking[0]
    return _missing_choice(suffixes, rules.attention) or _missing_choice(
        suffixes, rules.feed_forward
    )


def _missing_choice(
    suffixes: set[str], choices: Sequence[frozenset[str]]
) -> str | None:
    """Name what the nearest of several alternative sets lacks, if none is whole."""
    nearest = min(choices, key=lambda choice: len(choice - suffixes))
    return min(nearest - suffixes, default=None)


def _check_embedding(model: GgufModel) -> None:
    tensors = {tensor.name: tensor for tensor in model.tensors}
    for name in (INPUT_EMBEDDING, OUTPUT_NORM):
        if name not in tensors:
            raise model.fail(f"tensor {name!r} is missing", _FETCH)
    width = model.required_int("embedding_length")
    rows = vocabulary_rows(model)
    shape = tensors[INPUT_EMBEDDING].shape
    if shape != (width, rows):
        raise model.fail(
            f"tensor {INPUT_EMBEDDING!r} has the shape {shape}; the metadata say "
            f"{width} by {rows} tokens",
            _FETCH,
        )


def vocabulary_rows(model: GgufModel) -> int:
    """Number of tokens by the metadata: the vocabulary's, else `vocab_size`.

    Raises:
        ModelError: Neither is there.
    """
    tokens = model.metadata.get(TOKENS_KEY)
    rows = model.optional_int("vocab_size") if tokens is None else tokens.count
    if rows is None:
        raise model.fail("says nothing about its vocabulary", _FETCH)
    return rows
