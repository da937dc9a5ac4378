"""A model that lacks something says what before anyone loads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ModelError
from skippyd.model.completeness import BlockTensor, block_tensor
from skippyd.model.gguf_model import open_model
from support import gguf_bytes as gb
from support.gguf_bytes import TinyLlama


if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("blk.0.attn_q.weight", BlockTensor(0, "attn_q.weight")),
        ("blk.511.x", BlockTensor(511, "x")),
        ("token_embd.weight", None),
        ("blk.01.x", None),
        ("blk.x.y", None),
        ("blk.1", None),
        ("v.blk.0.x", None),
        ("blk.123456.x", None),
    ],
)
def test_layer_tensors_are_told_by_their_names(
    name: str, expected: BlockTensor | None
) -> None:
    assert block_tensor(name) == expected


def test_a_vocabulary_without_weights_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.gguf"
    path.write_bytes(gb.gguf(TinyLlama().entries()))
    with pytest.raises(ModelError, match="holds a vocabulary and no weights"):
        open_model(path)


@pytest.mark.parametrize("layers", [0, 513, 2**32 - 1])
def test_an_impossible_number_of_layers_is_refused(tmp_path: Path, layers: int) -> None:
    entry = gb.u32("llama.block_count", layers)
    tiny = TinyLlama(replaced={"llama.block_count": entry})
    with pytest.raises(ModelError, match=f"has {layers} layers; 1 to 512"):
        open_model(tiny.write(tmp_path / "m.gguf"))


def test_no_number_of_layers_is_refused(tmp_path: Path) -> None:
    tiny = TinyLlama(replaced={"llama.block_count": None})
    with pytest.raises(ModelError, match=r"'llama\.block_count' is missing"):
        open_model(tiny.write(tmp_path / "m.gguf"))


@pytest.mark.parametrize(
    "name",
    [
        "token_embd.weight",
        "output_norm.weight",
        *(
            f"blk.1.{suffix}.weight"
            for suffix in (
                "attn_norm",
                "attn_q",
                "attn_k",
                "attn_v",
                "attn_output",
                "ffn_norm",
                "ffn_gate",
                "ffn_down",
                "ffn_up",
            )
        ),
    ],
)
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    tiny = TinyLlama(without=frozenset({name}))
    with pytest.raises(ModelError, match=f"tensor '{name}' is missing"):
        open_model(tiny.write(tmp_path / "m.gguf"))


def test_a_layer_past_the_count_is_named(tmp_path: Path) -> None:
    tiny = TinyLlama(extra_tensors={"blk.3.attn_q.weight": (8, 8)})
    with pytest.raises(
        ModelError, match=r"'blk\.3\.attn_q\.weight' belongs to a layer"
    ):
        open_model(tiny.write(tmp_path / "m.gguf"))


def test_fused_attention_and_experts_count_as_complete(tmp_path: Path) -> None:
    changed = {
        f"blk.{layer}.{name}": shape
        for layer in range(3)
        for name, shape in {
            "attn_qkv.weight": (8, 16),
            "ffn_gate_inp.weight": (8, 2),
            "ffn_gate_exps.weight": (8, 16, 2),
            "ffn_down_exps.weight": (16, 8, 2),
            "ffn_up_exps.weight": (8, 16, 2),
        }.items()
    }
    gone = frozenset(
        f"blk.{layer}.{name}.weight"
        for layer in range(3)
        for name in ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_down", "ffn_up")
    )
    tiny = TinyLlama(extra_tensors=changed, without=gone)
    assert open_model(tiny.write(tmp_path / "m.gguf")).layer_count == 3


@pytest.mark.parametrize("key", ["embedding_length", "vocab_size"])
def test_an_embedding_of_another_shape_is_refused(tmp_path: Path, key: str) -> None:
    tiny = TinyLlama(replaced={f"llama.{key}": gb.u32(f"llama.{key}", 7)})
    with pytest.raises(ModelError, match=r"has the shape \(8, 5\); the metadata say"):
        open_model(tiny.write(tmp_path / "m.gguf"))


def test_the_vocabulary_counts_before_vocab_size(tmp_path: Path) -> None:
    tokens = gb.text_array("tokenizer.ggml.tokens", list("abcde"))
    wrong = gb.u32("llama.vocab_size", 9)
    tiny = TinyLlama(extra_entries=(tokens,), replaced={"llama.vocab_size": wrong})
    assert open_model(tiny.write(tmp_path / "m.gguf")).layer_count == 3


def test_a_model_without_any_vocabulary_is_refused(tmp_path: Path) -> None:
    tiny = TinyLlama(replaced={"llama.vocab_size": None})
    with pytest.raises(ModelError, match="says nothing about its vocabulary"):
        open_model(tiny.write(tmp_path / "m.gguf"))


def test_an_architecture_that_is_not_offered_opens_so_that_its_name_can_refuse_it(
    tmp_path: Path,
) -> None:
    tiny = TinyLlama(architecture="mamba", without=frozenset({"output_norm.weight"}))
    assert open_model(tiny.write(tmp_path / "m.gguf")).architecture == "mamba"
