"""Per-layer numbers of a model: heads, lengths, and which layers slide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.model.architectures import ARCHITECTURES
from skippyd.model.gguf_types import ValueKind


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel


WINDOW_KEY = "attention.sliding_window"
WINDOW_PATTERN_KEY = "attention.sliding_window_pattern"


def per_layer(model: GgufModel, name: str) -> tuple[int, ...] | None:
    """One integer per layer from a key that holds a number or an array of them.

    Raises:
        ModelError: An array of another length than the layers, or not of integers.
    """
    entry = model.entry(name)
    if entry is None:
        return None
    layers = model.layer_count
    if entry.kind is not ValueKind.ARRAY:
        return (model.required_int(name),) * layers
    values = model.array(entry)
    if len(values) != layers or not all(isinstance(value, int) for value in values):
        raise model.fail(
            f"metadata key {entry.key!r} holds {len(values)} values for {layers} layers",
            "convert the model again",
        )
    return tuple(int(value) for value in values)


def head_counts(model: GgufModel) -> tuple[int, ...]:
    """Attention heads of each layer.

    Raises:
        ModelError: The key is missing or a layer has no head.
    """
    counts = per_layer(model, "attention.head_count")
    if counts is None or min(counts) < 1:
        raise model.fail(
            f"metadata key {model.key('attention.head_count')!r} is missing or zero",
            "convert the model again",
        )
    return counts


def kv_head_counts(model: GgufModel) -> tuple[int, ...]:
    """Key and value heads of each layer: as many as heads when nothing is said."""
    return per_layer(model, "attention.head_count_kv") or head_counts(model)


def key_length(model: GgufModel) -> int:
    """Weights of one head's key."""
    given = model.optional_int("attention.key_length")
    return _width_per_head(model) if given is None else given


def value_length(model: GgufModel) -> int:
    """Weights of one head's value."""
    given = model.optional_int("attention.value_length")
    return _width_per_head(model) if given is None else given


def _width_per_head(model: GgufModel) -> int:
    return model.required_int("embedding_length") // head_counts(model)[0]


def sliding_layers(model: GgufModel) -> tuple[bool, ...]:
    """Whether each layer sees a window only, as the whole model decides it.

    Raises:
        ModelError: A pattern of another length than the layers.
    """
    layers = model.layer_count
    architecture = ARCHITECTURES.get(model.architecture)
    window = None if architecture is None else architecture.window
    if window is None or not model.optional_int(WINDOW_KEY):
        return (False,) * layers
    pattern = model.entry(WINDOW_PATTERN_KEY)
    if pattern is not None and pattern.kind is ValueKind.ARRAY:
        return tuple(
            bool(value) for value in per_layer(model, WINDOW_PATTERN_KEY) or ()
        )
    given = model.optional_int(WINDOW_PATTERN_KEY)
    period = window.default_period if given is None else given
    return tuple(period == 0 or i % period < period - 1 for i in range(layers))
