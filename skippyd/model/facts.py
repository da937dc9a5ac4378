"""What a planner and a stage need to know about a model, in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from skippyd.errors import RefusedError
from skippyd.model.architectures import INPUT_EMBEDDING, OUTPUT_TENSORS
from skippyd.model.completeness import block_tensor, vocabulary_rows
from skippyd.model.gguf_types import TENSOR_TYPES_BY_NAME
from skippyd.model.layer_shapes import key_length, kv_head_counts, value_length
from skippyd.model.slice_metadata import TOKENIZER_MODEL_KEY
from skippyd.model.slicing import is_tied


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel


_NO_TOKENIZERS = frozenset({"none", "no_vocab"})


@attrs.frozen(kw_only=True)
class ModelFacts:
    """Sizes of one model; all weights in bytes of tensor data.

    Args:
        width: Weights of one activation row (embedding length).
        context_length: Positions the model was trained for.
        kv_rows_per_layer: For each layer, weights of one token's keys and values over
            all its heads; sliding layers count in full.
        other_bytes: Tensors that are neither in a layer nor embedding nor output.
    """

    architecture: str
    layer_count: int
    width: int
    context_length: int
    vocab_size: int
    has_tokenizer: bool
    is_tied: bool
    weight_bytes: int
    layer_weight_bytes: tuple[int, ...]
    embedding_bytes: int
    output_bytes: int
    other_bytes: int
    kv_rows_per_layer: tuple[tuple[int, int], ...]

    def kv_bytes_per_token(self, type_k: str = "f16", type_v: str = "f16") -> int:
        """Bytes of one token in the KV caches of all layers (contract)."""
        return sum(self.layer_kv_bytes_per_token(type_k, type_v))

    def layer_kv_bytes_per_token(
        self, type_k: str = "f16", type_v: str = "f16"
    ) -> tuple[int, ...]:
        """Bytes of one token in each layer's KV cache, for these cache types.

        Raises:
            RefusedError: A type that does not exist or whose block does not divide
                the rows.
        """
        return tuple(
            _cache_row_bytes(type_k, key_row) + _cache_row_bytes(type_v, value_row)
            for key_row, value_row in self.kv_rows_per_layer
        )


def _cache_row_bytes(name: str, weights: int) -> int:
    kind = TENSOR_TYPES_BY_NAME.get(name)
    if kind is None:
        raise RefusedError(f"cache type {name!r} does not exist; f16 always works")
    if weights % kind.block_weights:
        raise RefusedError(
            f"cache type {name!r} has blocks of {kind.block_weights} weights, the model "
            f"has rows of {weights}; f16 always works"
        )
    return kind.row_bytes(weights)


def model_facts(model: GgufModel) -> ModelFacts:
    """Take the facts from a checked model's metadata and tensor table.

    Raises:
        ModelError: A key that every model of this kind has is missing or malformed.
    """
    layers = [0] * model.layer_count
    embedding = output = other = 0
    for tensor in model.tensors:
        block = block_tensor(tensor.name)
        if block is not None and block.layer < len(layers):
            layers[block.layer] += tensor.nbytes
        elif tensor.name == INPUT_EMBEDDING:
            embedding += tensor.nbytes
        elif tensor.name in OUTPUT_TENSORS:
            output += tensor.nbytes
        else:
            other += tensor.nbytes
    keys, values = key_length(model), value_length(model)
    return ModelFacts(
        architecture=model.architecture,
        layer_count=model.layer_count,
        width=model.required_int("embedding_length"),
        context_length=model.required_int("context_length"),
        vocab_size=vocabulary_rows(model),
        has_tokenizer=has_tokenizer(model),
        is_tied=is_tied(model),
        weight_bytes=sum(layers) + embedding + output + other,
        layer_weight_bytes=tuple(layers),
        embedding_bytes=embedding,
        output_bytes=output,
        other_bytes=other,
        kv_rows_per_layer=tuple(
            (heads * keys, heads * values) for heads in kv_head_counts(model)
        ),
    )


def has_tokenizer(model: GgufModel) -> bool:
    """Whether the file brings a vocabulary with it."""
    return (model.text(TOKENIZER_MODEL_KEY) or "none") not in _NO_TOKENIZERS
