"""Facts are sums over the tensor table and the contract's formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.errors import RefusedError
from skippyd.model.facts import ModelFacts, model_facts
from skippyd.model.gguf_model import open_model
from support import gguf_bytes as gb
from support.gguf_bytes import TinyLlama
from support.random_models import (
    GEMMA3,
    LLAMA_TIED,
    LLAMA_UNTIED,
    QWEN3,
    ZOO,
    RandomModel,
    write_random_model,
)


if TYPE_CHECKING:
    from pathlib import Path


def facts_of(tmp_path: Path, spec: RandomModel) -> ModelFacts:
    return model_facts(open_model(write_random_model(tmp_path / "m.gguf", spec)))


def test_names_and_numbers_come_from_the_metadata(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, LLAMA_TIED)
    assert facts.architecture == "llama"
    assert (facts.layer_count, facts.width, facts.vocab_size) == (6, 64, 320)
    assert facts.context_length == 2048
    assert facts.is_tied
    assert not facts.has_tokenizer


def test_a_vocabulary_is_seen_and_counted(tmp_path: Path) -> None:
    spec = attrs.evolve(LLAMA_TIED, with_tokenizer=True)
    facts = facts_of(tmp_path, spec)
    assert facts.has_tokenizer
    assert facts.vocab_size == spec.token_count == 264


@pytest.mark.parametrize("name", ZOO)
def test_weights_add_up(tmp_path: Path, name: str) -> None:
    model = open_model(write_random_model(tmp_path / "m.gguf", ZOO[name]))
    facts = model_facts(model)
    assert facts.weight_bytes == sum(tensor.nbytes for tensor in model.tensors)
    assert len(facts.layer_weight_bytes) == facts.layer_count
    assert facts.weight_bytes == (
        sum(facts.layer_weight_bytes)
        + facts.embedding_bytes
        + facts.output_bytes
        + facts.other_bytes
    )


def test_a_layer_weighs_its_matrices_and_norms(tmp_path: Path) -> None:
    attention = 64 * 64 + 2 * 64 * 32 + 64 * 64
    layer = 4 * (attention + 3 * 64 * 96 + 2 * 64)
    facts = facts_of(tmp_path, LLAMA_TIED)
    assert facts.layer_weight_bytes == (layer,) * 6
    assert facts.embedding_bytes == 4 * 64 * 320
    assert facts.output_bytes == 0
    assert facts.other_bytes == 4 * 64


def test_an_untied_output_is_counted_apart(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, LLAMA_UNTIED)
    assert not facts.is_tied
    assert facts.embedding_bytes == facts.output_bytes == 2 * 128 * 320


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("f16", "f16"), 6 * 2 * (32 * 2 + 32 * 2)),
        (("f32", "f16"), 6 * 2 * (32 * 4 + 32 * 2)),
        (("q8_0", "q4_0"), 6 * 2 * (34 + 18)),
    ],
)
def test_kv_bytes_follow_the_contracts_formula(
    tmp_path: Path, types: tuple[str, str], expected: int
) -> None:
    """Heads_kv x (key length x size(K) + value length x size(V)), over the layers."""
    assert facts_of(tmp_path, QWEN3).kv_bytes_per_token(*types) == expected


def test_sliding_layers_count_in_full(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, GEMMA3)
    assert facts.kv_bytes_per_token() == 12 * 1 * (32 * 2 + 32 * 2)
    assert len(set(facts.layer_kv_bytes_per_token())) == 1


def test_heads_per_layer_are_summed_per_layer(tmp_path: Path) -> None:
    entry = gb.u32_array("llama.attention.head_count_kv", [1, 2, 1])
    tiny = TinyLlama(replaced={"llama.attention.head_count_kv": entry})
    facts = model_facts(open_model(tiny.write(tmp_path / "m.gguf")))
    assert facts.layer_kv_bytes_per_token() == (16, 32, 16)


def test_cache_types_that_cannot_be_are_refused(tmp_path: Path) -> None:
    facts = model_facts(open_model(TinyLlama().write(tmp_path / "m.gguf")))
    with pytest.raises(RefusedError, match="'q3_1' does not exist"):
        facts.kv_bytes_per_token("q3_1")
    with pytest.raises(RefusedError, match="blocks of 32 weights, the model has rows"):
        facts.kv_bytes_per_token("f16", "q8_0")
