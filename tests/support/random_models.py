"""Small random models of each offered architecture, written by the tests themselves.

Weights are drawn so that a model behaves like one: logits spread over more than 0.1 and
greedy decoding visits several tokens. A model with a tokenizer speaks printable ASCII:
the rows of other bytes and of control tokens are scaled down so that greedy decoding
does not choose them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import gguf
import numpy as np
from gguf.quants import quantize

from support.tiny_tokenizer import add_tokenizer, quiet_token_ids, token_texts


if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt


QUANTISED = {
    "f16": gguf.GGMLQuantizationType.F16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
}


@attrs.frozen(kw_only=True)
class RandomModel:
    """What a random model looks like; the defaults are a small tied llama.

    Args:
        key_length: Weights per head; None: width / heads.
        biases: Biases on query, key and value.
        more_biases: llama only: biases on attention output and feed-forward too.
        experts: llama only: experts per layer, 2 of them used; 0 for a dense model.
        rope_factors: llama only: a `rope_freqs.weight` tensor.
        window: gemma3 only: sliding window in tokens; 0 for none.
        window_period: gemma3 only: written as the scalar pattern key if given.
        window_pattern: gemma3 only: written as the per-layer array if given.
        per_layer_arrays: Head counts and feed-forward length as arrays.
        dtype: f32, f16, q8_0 or q4_0 for the matrices.
        with_tokenizer: A byte-level vocabulary with a chat template; otherwise the
            tokenizer is "none" and `vocab_size` counts.
        tensors_per_part: Split into files of so many tensors, behind a first file that
            holds metadata only; 0 for one file.
    """

    architecture: str = "llama"
    layers: int = 6
    width: int = 64
    heads: int = 4
    kv_heads: int = 2
    key_length: int | None = None
    feed_forward: int = 96
    vocab_size: int = 320
    context_length: int = 2048
    tied: bool = True
    biases: bool = False
    more_biases: bool = False
    experts: int = 0
    rope_factors: bool = False
    window: int = 0
    window_period: int | None = None
    window_pattern: tuple[bool, ...] | None = None
    per_layer_arrays: bool = False
    dtype: str = "f32"
    with_tokenizer: bool = False
    tensors_per_part: int = 0
    seed: int = 1

    @property
    def head_weights(self) -> int:
        """Weights per head."""
        return self.key_length or self.width // self.heads

    @property
    def token_count(self) -> int:
        """Rows of the embedding."""
        return len(token_texts()) if self.with_tokenizer else self.vocab_size


EXPERTS_USED = 2

EMBEDDING_GAIN = 0.5

LLAMA_TIED = RandomModel()
LLAMA_UNTIED = RandomModel(tied=False, width=128, dtype="f16")
LLAMA_BIASES = RandomModel(biases=True, more_biases=True, dtype="q8_0")
LLAMA_EXPERTS = RandomModel(experts=4, tied=False)
LLAMA_ROPE_FACTORS = RandomModel(rope_factors=True, per_layer_arrays=True)
LLAMA_Q4_0 = RandomModel(tied=False, dtype="q4_0", kv_heads=4)
QWEN2 = RandomModel(architecture="qwen2", biases=True)
QWEN2_UNTIED = RandomModel(
    architecture="qwen2", biases=True, tied=False, width=96, heads=3, kv_heads=1
)
QWEN3 = RandomModel(architecture="qwen3", key_length=32)
QWEN3_UNTIED = RandomModel(architecture="qwen3", tied=False, dtype="q8_0")
GEMMA3 = RandomModel(
    architecture="gemma3", layers=12, window=8, key_length=32, kv_heads=1
)
GEMMA3_PERIOD_4 = attrs.evolve(GEMMA3, window_period=4, dtype="f16", seed=3)
GEMMA3_PATTERN = attrs.evolve(
    GEMMA3,
    window_pattern=tuple(i in {0, 1, 4, 7, 8, 9, 11} for i in range(12)),
)
GEMMA3_NO_WINDOW = attrs.evolve(GEMMA3, window=0, seed=4)

ZOO: dict[str, RandomModel] = {
    "llama-tied": LLAMA_TIED,
    "llama-untied": LLAMA_UNTIED,
    "llama-biases": LLAMA_BIASES,
    "llama-experts": LLAMA_EXPERTS,
    "llama-rope-factors": LLAMA_ROPE_FACTORS,
    "llama-q4_0": LLAMA_Q4_0,
    "qwen2": QWEN2,
    "qwen2-untied": QWEN2_UNTIED,
    "qwen3": QWEN3,
    "qwen3-untied": QWEN3_UNTIED,
    "gemma3": GEMMA3,
    "gemma3-period-4": GEMMA3_PERIOD_4,
    "gemma3-pattern": GEMMA3_PATTERN,
    "gemma3-no-window": GEMMA3_NO_WINDOW,
}
"""The models that every proof of exactness runs over."""


def write_random_model(path: Path, spec: RandomModel) -> Path:
    """Write the model `spec` describes and return the path to open it by.

    That is `path`, or the first part beside it when the model is split.
    """
    writer = gguf.GGUFWriter(
        path,
        spec.architecture,
        split_max_tensors=spec.tensors_per_part,
        small_first_shard=spec.tensors_per_part > 0,
    )
    _add_metadata(writer, spec)
    _TensorWriter(writer, spec, np.random.default_rng(spec.seed)).add_all()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if not spec.tensors_per_part:
        return path
    return next(path.parent.glob(f"{path.stem}-00001-of-*.gguf"))


def _add_metadata(writer: gguf.GGUFWriter, spec: RandomModel) -> None:
    arch = spec.architecture

    def add_count(name: str, value: int, per_layer: bool = False) -> None:
        if per_layer and spec.per_layer_arrays:
            writer.add_array(f"{arch}.{name}", [value] * spec.layers)
        else:
            writer.add_uint32(f"{arch}.{name}", value)

    writer.add_name("random")
    add_count("block_count", spec.layers)
    add_count("context_length", spec.context_length)
    add_count("embedding_length", spec.width)
    add_count("feed_forward_length", spec.feed_forward, per_layer=True)
    add_count("attention.head_count", spec.heads, per_layer=True)
    add_count("attention.head_count_kv", spec.kv_heads, per_layer=True)
    add_count("attention.key_length", spec.head_weights)
    add_count("attention.value_length", spec.head_weights)
    add_count("rope.dimension_count", spec.head_weights)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{arch}.rope.freq_base", 10_000.0)
    if spec.experts:
        add_count("expert_count", spec.experts)
        add_count("expert_used_count", EXPERTS_USED)
    _add_window(writer, spec)
    if spec.with_tokenizer:
        add_tokenizer(writer)
    else:
        writer.add_tokenizer_model("none")
        add_count("vocab_size", spec.vocab_size)


def _add_window(writer: gguf.GGUFWriter, spec: RandomModel) -> None:
    if not spec.window:
        return
    prefix = f"{spec.architecture}.attention.sliding_window"
    writer.add_uint32(prefix, spec.window)
    if spec.window_period is not None:
        writer.add_uint32(f"{prefix}_pattern", spec.window_period)
    if spec.window_pattern is not None:
        writer.add_array(f"{prefix}_pattern", list(spec.window_pattern))


@attrs.define
class _TensorWriter:
    writer: gguf.GGUFWriter
    spec: RandomModel
    rng: np.random.Generator

    def add_all(self) -> None:
        spec = self.spec
        # A small embedding lets the layers decide the next token: a tied model would
        # otherwise repeat the token it is given.
        self._vocabulary("token_embd", gain=EMBEDDING_GAIN)
        if spec.rope_factors:
            factors = np.linspace(1, 8, spec.head_weights // 2, dtype=np.float32)
            self.writer.add_tensor("rope_freqs.weight", factors)
        for layer in range(spec.layers):
            self._attention(f"blk.{layer}")
            if spec.experts:
                self._experts(f"blk.{layer}")
            else:
                self._feed_forward(f"blk.{layer}")
        self._norm("output_norm", spec.width)
        if not spec.tied:
            self._vocabulary("output", gain=1.0)

    def _vocabulary(self, name: str, *, gain: float) -> None:
        spec = self.spec
        values = self._draw((spec.token_count, spec.width), gain=gain)
        if spec.with_tokenizer:
            values[quiet_token_ids()] *= 0.01
        self._add(f"{name}.weight", values)

    def _attention(self, block: str) -> None:
        spec = self.spec
        queries = spec.heads * spec.head_weights
        keys = spec.kv_heads * spec.head_weights
        self._norm(f"{block}.attn_norm", spec.width)
        for name, rows in (("attn_q", queries), ("attn_k", keys), ("attn_v", keys)):
            self._matrix(f"{block}.{name}", rows, spec.width, gain=1.5)
            if spec.biases:
                self._bias(f"{block}.{name}", rows)
        self._matrix(f"{block}.attn_output", spec.width, queries, gain=1.5)
        if spec.more_biases:
            self._bias(f"{block}.attn_output", spec.width)
        if spec.architecture in {"qwen3", "gemma3"}:
            self._norm(f"{block}.attn_q_norm", spec.head_weights)
            self._norm(f"{block}.attn_k_norm", spec.head_weights)
        if spec.architecture == "gemma3":
            self._norm(f"{block}.post_attention_norm", spec.width)
            self._norm(f"{block}.post_ffw_norm", spec.width)

    def _feed_forward(self, block: str) -> None:
        spec = self.spec
        self._norm(f"{block}.ffn_norm", spec.width)
        for name, rows, columns in (
            ("ffn_gate", spec.feed_forward, spec.width),
            ("ffn_up", spec.feed_forward, spec.width),
            ("ffn_down", spec.width, spec.feed_forward),
        ):
            self._matrix(f"{block}.{name}", rows, columns, gain=1.5)
            if spec.more_biases:
                self._bias(f"{block}.{name}", rows)

    def _experts(self, block: str) -> None:
        spec = self.spec
        self._norm(f"{block}.ffn_norm", spec.width)
        router = self._draw((spec.experts, spec.width), gain=2.0)
        self.writer.add_tensor(f"{block}.ffn_gate_inp.weight", router)
        for name, rows, columns in (
            ("ffn_gate_exps", spec.feed_forward, spec.width),
            ("ffn_up_exps", spec.feed_forward, spec.width),
            ("ffn_down_exps", spec.width, spec.feed_forward),
        ):
            values = self._draw((spec.experts, rows, columns), gain=1.5)
            self._add(f"{block}.{name}.weight", values)

    def _matrix(self, name: str, rows: int, columns: int, *, gain: float) -> None:
        self._add(f"{name}.weight", self._draw((rows, columns), gain=gain))

    def _draw(self, shape: tuple[int, ...], *, gain: float) -> npt.NDArray[np.float32]:
        deviation = gain / np.sqrt(shape[-1])
        drawn = self.rng.standard_normal(shape, dtype=np.float32)
        return drawn * np.float32(deviation)

    def _add(self, name: str, values: npt.NDArray[np.float32]) -> None:
        kind = QUANTISED.get(self.spec.dtype)
        if kind is None:
            self.writer.add_tensor(name, values)
        else:
            self.writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)

    def _norm(self, name: str, width: int) -> None:
        values = 1 + 0.1 * self.rng.standard_normal(width)
        self.writer.add_tensor(f"{name}.weight", values.astype(np.float32))

    def _bias(self, name: str, width: int) -> None:
        values = 0.3 * self.rng.standard_normal(width)
        self.writer.add_tensor(f"{name}.bias", values.astype(np.float32))
