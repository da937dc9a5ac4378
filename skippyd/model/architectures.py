"""What is known to be exact about each architecture that can be cut: one table.

Read off the sources of llama.cpp as llama-cpp-python 0.3.36 carries it, for each
architecture the tensors it loads, the metadata it reads per layer, and every place
where the number or the index of a layer changes what a layer computes. An architecture,
tensor or array that the table does not know is refused by name: a cut is exact or it is
not offered. `SLICE_RULES_VERSION` goes into the identity of a stage, so raise it with
any change that alters a slice.

Facts that hold for all of them in that build:

- The graph takes head counts, feed-forward length and experts per token from layer 0
  for all layers, so arrays of these must hold one value.
- A layer's output is named `l_out-<index>`.
- Rope factors that are not in a block belong to every layer.
- The input embedding is used as it is when activations are fed in (gemma3 scales it
  only for token ids).
"""

from __future__ import annotations

import attrs


SLICE_RULES_VERSION = 1

INPUT_EMBEDDING = "token_embd.weight"
OUTPUT_NORM = "output_norm.weight"
OUTPUT_WEIGHT = "output.weight"

INPUT_TENSORS = frozenset({INPUT_EMBEDDING})
"""Needed where token ids enter (and at the end of a tied model)."""

OUTPUT_TENSORS = frozenset(
    {OUTPUT_WEIGHT, "output.bias", "output.scale", "output.input_scale"}
)
"""The vocabulary projection: needed where logits leave."""

_ATTENTION_WEIGHTS = ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output")
_DENSE_WEIGHTS = ("ffn_gate", "ffn_down", "ffn_up")
_EXPERT_WEIGHTS = ("ffn_gate_exps", "ffn_down_exps", "ffn_up_exps")
_QKV_BIASES = frozenset({"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"})
_DENSE_FEED_FORWARD = frozenset(f"{name}.weight" for name in _DENSE_WEIGHTS)
_EXPERT_FEED_FORWARD = frozenset(
    {"ffn_gate_inp.weight", *(f"{name}.weight" for name in _EXPERT_WEIGHTS)}
)
_SCALES = frozenset(
    f"{name}.{scale}"
    for name in (*_ATTENTION_WEIGHTS, *_DENSE_WEIGHTS, *_EXPERT_WEIGHTS)
    for scale in ("scale", "input_scale")
)
_SEPARATE_QKV = frozenset({"attn_q.weight", "attn_k.weight", "attn_v.weight"})
_FUSED_QKV = frozenset({"attn_qkv.weight"})
_QK_NORMS = frozenset({"attn_q_norm.weight", "attn_k_norm.weight"})

_UNIFORM_ARRAYS = frozenset(
    {
        "attention.head_count",
        "attention.head_count_kv",
        "feed_forward_length",
        "expert_used_count",
    }
)


@attrs.frozen(kw_only=True)
class SlidingWindow:
    """How an architecture decides which layers look at a window only.

    Args:
        default_period: Without a pattern in the file, each `default_period`-th layer
            sees everything and the others slide.
    """

    default_period: int


@attrs.frozen(kw_only=True)
class Architecture:
    """What one architecture loads and what depends on a layer's place.

    Args:
        name: Value of `general.architecture`, prefix of its keys.
        block: Tensors (without `blk.N.`) that every layer has.
        attention: Alternative sets for the attention's input; one must be there.
        feed_forward: Alternative sets for the feed-forward part; one must be there.
        optional: Tensors that a layer may have.
        shared: Tensors outside blocks that every stage needs if the file has them.
        uniform_arrays: Keys (without the prefix) that may be one value per layer,
            all equal.
        whole_arrays: Arrays that are not per layer and are kept whole.
        window: Set if layers slide by their index.
        layers_of_other_scale: A layer count at which the attention scale is taken from
            the embedding length instead of the key length.
    """

    name: str
    block: frozenset[str]
    attention: tuple[frozenset[str], ...] = (_SEPARATE_QKV, _FUSED_QKV)
    feed_forward: tuple[frozenset[str], ...] = (_DENSE_FEED_FORWARD,)
    optional: frozenset[str] = _QKV_BIASES | _SCALES
    shared: frozenset[str] = frozenset({OUTPUT_NORM})
    uniform_arrays: frozenset[str] = _UNIFORM_ARRAYS
    whole_arrays: frozenset[str] = frozenset({"rope.dimension_sections"})
    window: SlidingWindow | None = None
    layers_of_other_scale: int | None = None

    def knows_block_tensor(self, suffix: str) -> bool:
        """Whether a layer of this architecture can hold `blk.N.<suffix>`."""
        return (
            suffix in self.block
            or suffix in self.optional
            or any(suffix in choice for choice in self.attention)
            or any(suffix in choice for choice in self.feed_forward)
        )

    def knows_shared_tensor(self, name: str) -> bool:
        """Whether a tensor outside the blocks is known by name."""
        return name in self.shared or name in INPUT_TENSORS or name in OUTPUT_TENSORS


_PLAIN_BLOCK = frozenset({"attn_norm.weight", "attn_output.weight", "ffn_norm.weight"})

_TABLE = (
    Architecture(
        name="llama",
        block=_PLAIN_BLOCK,
        feed_forward=(_DENSE_FEED_FORWARD, _EXPERT_FEED_FORWARD),
        optional=_QKV_BIASES
        | _SCALES
        | {"attn_output.bias", "ffn_gate.bias", "ffn_down.bias", "ffn_up.bias"},
        shared=frozenset(
            {
                OUTPUT_NORM,
                "rope_freqs.weight",
                "rope_factors_long.weight",
                "rope_factors_short.weight",
            }
        ),
    ),
    Architecture(name="qwen2", block=_PLAIN_BLOCK),
    Architecture(name="qwen3", block=_PLAIN_BLOCK | _QK_NORMS),
    Architecture(
        name="gemma3",
        block=_PLAIN_BLOCK
        | _QK_NORMS
        | {"post_attention_norm.weight", "post_ffw_norm.weight"},
        window=SlidingWindow(default_period=6),
        layers_of_other_scale=62,
    ),
)

ARCHITECTURES: dict[str, Architecture] = {row.name: row for row in _TABLE}
"""Every architecture that is offered, by name."""

NEUTRAL_VALUES: dict[str, tuple[int | bool, ...]] = {
    "nextn_predict_layers": (0,),
    "attention.causal": (True,),
    "pooling_type": (0,),
}
"""Keys (without the prefix) that llama.cpp reads for every architecture and that change
the graph or what the last layers are; with another value the model is refused."""
