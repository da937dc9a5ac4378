"""Which cuts are offered: exact or refused, always with the name of the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skippyd.errors import RefusedError
from skippyd.model.architectures import (
    ARCHITECTURES,
    NEUTRAL_VALUES,
    Architecture,
)
from skippyd.model.completeness import block_tensor
from skippyd.model.gguf_limits import MAX_LAYERS
from skippyd.model.gguf_types import ValueKind
from skippyd.model.layer_shapes import (
    WINDOW_PATTERN_KEY,
    head_counts,
    key_length,
    value_length,
)
from skippyd.model.slice_rules import ALL_RULES, SliceRules


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel


def refused_reason(
    model: GgufModel, start: int, end: int, *, rules: SliceRules = ALL_RULES
) -> str | None:
    """Say why layers [start, end) cannot be a stage, or None when they can."""
    architecture = ARCHITECTURES.get(model.architecture)
    if architecture is None:
        offered = ", ".join(sorted(ARCHITECTURES))
        return f"architecture {model.architecture!r} is not offered; offered: {offered}"
    layers = model.layer_count
    if not 0 <= start < end <= layers:
        return (
            f"layers {start} to {end} are out of range: the model has {layers} layers"
        )
    return (
        _unknown_tensor(model, architecture)
        or _unknown_array(model, architecture)
        or _unusual_value(model, architecture)
        or _other_scale(model, architecture, end - start, rules)
    )


def check_range(
    model: GgufModel, start: int, end: int, *, rules: SliceRules = ALL_RULES
) -> None:
    """Raise unless layers [start, end) can be a stage.

    Raises:
        RefusedError: The file and the reason by name.
    """
    reason = refused_reason(model, start, end, rules=rules)
    if reason is not None:
        raise RefusedError(f"{model.path}: {reason}")


def check_cut(model: GgufModel, at: int) -> None:
    """Raise unless the model can be cut into [0, at) and [at, layers).

    Raises:
        RefusedError: The file and the reason by name.
    """
    # An architecture that is not offered need not have a layer count at all.
    if model.architecture in ARCHITECTURES and not 0 < at < model.layer_count:
        raise RefusedError(
            f"{model.path}: cut {at} is out of range: a model of {model.layer_count} "
            f"layers can be cut at 1 to {model.layer_count - 1}"
        )
    check_range(model, 0, at)
    check_range(model, at, model.layer_count)


def _unknown_tensor(model: GgufModel, rules: Architecture) -> str | None:
    for tensor in model.tensors:
        found = block_tensor(tensor.name)
        known = (
            rules.knows_shared_tensor(tensor.name)
            if found is None
            else rules.knows_block_tensor(found.suffix)
        )
        if not known:
            return (
                f"tensor {tensor.name!r} is not known for architecture {rules.name!r}, "
                "so no cut is known to be exact"
            )
    return None


def _unknown_array(model: GgufModel, rules: Architecture) -> str | None:
    prefix = f"{rules.name}."
    for key, entry in model.metadata.items():
        if entry.kind is not ValueKind.ARRAY or not key.startswith(prefix):
            continue
        name = key.removeprefix(prefix)
        if name in rules.whole_arrays:
            continue
        per_layer = name in rules.uniform_arrays
        if not per_layer and not (rules.window and name == WINDOW_PATTERN_KEY):
            return f"array {key!r} is not known for architecture {rules.name!r}"
        if entry.count != model.layer_count or entry.count > MAX_LAYERS:
            return (
                f"array {key!r} holds {entry.count} values "
                f"for {model.layer_count} layers"
            )
        if per_layer and len(set(model.array(entry))) > 1:
            return f"array {key!r} differs between layers, the graph takes layer 0's"
    return None


def _unusual_value(model: GgufModel, rules: Architecture) -> str | None:
    width = model.required_int("embedding_length")
    neutral = {**NEUTRAL_VALUES, "embedding_length_out": (width,)}
    if rules.window is not None:
        # Lengths of their own on sliding layers would be taken from layer 0, which is
        # another layer in each slice.
        neutral["attention.key_length_swa"] = (key_length(model),)
        neutral["attention.value_length_swa"] = (value_length(model),)
        rope = model.optional_int("rope.dimension_count")
        neutral["rope.dimension_count_swa"] = (rope or key_length(model),)
    for name, allowed in neutral.items():
        entry = model.entry(name)
        if entry is not None and entry.value not in allowed:
            return f"{entry.key} is {entry.value}; only {allowed[0]} is known exact"
    return None


def _other_scale(
    model: GgufModel, architecture: Architecture, kept: int, rules: SliceRules
) -> str | None:
    special = architecture.layers_of_other_scale
    if special is None or not rules.refuse_other_scale:
        return None
    if (model.layer_count == special) == (kept == special):
        return None
    by_width = model.required_int("embedding_length") // head_counts(model)[0]
    by_key = key_length(model)
    if by_width == by_key:
        return None
    slice_scale, model_scale = (
        (by_width, by_key) if kept == special else (by_key, by_width)
    )
    return (
        f"{architecture.name} scales attention differently when it has exactly "
        f"{special} layers: {kept} of {model.layer_count} layers would compute with "
        f"1/sqrt({slice_scale}) instead of 1/sqrt({model_scale})"
    )
