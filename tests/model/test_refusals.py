"""What is not known to be exact is refused, and the reason has a name."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.errors import ExitCode, ModelError, RefusedError
from skippyd.model.gguf_model import GgufModel, open_model
from skippyd.model.refusals import check_cut, check_range, refused_reason
from skippyd.model.slice_rules import SliceRules
from support import gguf_bytes as gb
from support.gguf_bytes import TinyLlama
from support.random_models import GEMMA3, ZOO, RandomModel, write_random_model


if TYPE_CHECKING:
    from pathlib import Path


def opened(tmp_path: Path, tiny: TinyLlama) -> GgufModel:
    return open_model(tiny.write(tmp_path / "m.gguf"))


@pytest.mark.parametrize("name", ZOO)
def test_every_range_of_an_offered_model_is_offered(tmp_path: Path, name: str) -> None:
    model = open_model(write_random_model(tmp_path / "m.gguf", ZOO[name]))
    layers = model.layer_count
    ranges = [(a, b) for a in range(layers) for b in range(a + 1, layers + 1)]
    assert {refused_reason(model, a, b) for a, b in ranges} == {None}


def test_an_architecture_that_is_not_in_the_table_is_refused_by_name(
    tmp_path: Path,
) -> None:
    model = opened(tmp_path, TinyLlama(architecture="mamba"))
    with pytest.raises(RefusedError, match="'mamba' is not offered") as caught:
        check_cut(model, 1)
    assert caught.value.exit_code is ExitCode.REFUSED
    assert "gemma3, llama, qwen2, qwen3" in str(caught.value)


@pytest.mark.parametrize("at", [-1, 0, 3, 4])
def test_a_cut_out_of_range_is_refused_with_the_range(tmp_path: Path, at: int) -> None:
    model = opened(tmp_path, TinyLlama())
    with pytest.raises(RefusedError, match="a model of 3 layers can be cut at 1 to 2"):
        check_cut(model, at)


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (0, 4), (2, 2), (2, 1)])
def test_a_range_that_is_none_is_refused(tmp_path: Path, start: int, end: int) -> None:
    model = opened(tmp_path, TinyLlama())
    with pytest.raises(RefusedError, match="out of range: the model has 3 layers"):
        check_range(model, start, end)


@pytest.mark.parametrize(
    "name", ["cls.output.weight", "dense_2.weight", "blk.1.attn_sinks.weight", "x"]
)
def test_an_unknown_tensor_is_refused_by_name(tmp_path: Path, name: str) -> None:
    model = opened(tmp_path, TinyLlama(extra_tensors={name: (8,)}))
    with pytest.raises(RefusedError, match=f"tensor '{name}' is not known"):
        check_cut(model, 1)


def test_tensors_of_another_architecture_are_unknown(tmp_path: Path) -> None:
    extra = {"rope_freqs.weight": (2,)}
    assert (
        refused_reason(opened(tmp_path, TinyLlama(extra_tensors=extra)), 0, 1) is None
    )
    other = TinyLlama(architecture="qwen2", extra_tensors=extra)
    assert "rope_freqs" in (refused_reason(opened(tmp_path, other), 0, 1) or "")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            gb.u32_array("llama.secret", [1, 2, 3]),
            r"array 'llama\.secret' is not known",
        ),
        (
            gb.u32_array("llama.attention.sliding_window_pattern", [1, 0, 1]),
            "sliding_window_pattern' is not known",
        ),
        (
            gb.u32_array("llama.feed_forward_length", [16, 16, 24]),
            "feed_forward_length' differs between layers",
        ),
        (
            gb.u32_array("llama.feed_forward_length", [16, 16]),
            "feed_forward_length' holds 2 values for 3 layers",
        ),
        (
            gb.u32_array("llama.feed_forward_length", [16] * 600),
            "feed_forward_length' holds 600 values for 3 layers",
        ),
    ],
)
def test_an_array_that_is_not_known_to_be_per_layer_is_refused_by_name(
    tmp_path: Path, entry: bytes, message: str
) -> None:
    tiny = TinyLlama(
        replaced={"llama.feed_forward_length": None}, extra_entries=(entry,)
    )
    with pytest.raises(RefusedError, match=message):
        check_cut(opened(tmp_path, tiny), 1)


def test_known_and_foreign_arrays_are_no_reason_to_refuse(tmp_path: Path) -> None:
    entries = (
        gb.u32_array("llama.rope.dimension_sections", [1, 1, 1, 1]),
        gb.text_array("general.tags", ["a", "b", "c"]),
        gb.u32_array("llama.expert_used_count", [0, 0, 0]),
    )
    check_cut(opened(tmp_path, TinyLlama(extra_entries=entries)), 1)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (gb.u32("llama.nextn_predict_layers", 1), "nextn_predict_layers is 1"),
        (gb.entry("llama.attention.causal", gb.BOOL, b"\0"), "causal is False"),
        (gb.u32("llama.pooling_type", 3), "pooling_type is 3"),
        (gb.u32("llama.embedding_length_out", 4), "embedding_length_out is 4; only 8"),
    ],
)
def test_a_key_that_changes_the_graph_is_refused_by_name(
    tmp_path: Path, entry: bytes, message: str
) -> None:
    model = opened(tmp_path, TinyLlama(extra_entries=(entry,)))
    with pytest.raises(RefusedError, match=message):
        check_cut(model, 1)


def gemma(tmp_path: Path, *entries: bytes, spec: RandomModel = GEMMA3) -> GgufModel:
    path = write_random_model(tmp_path / "g.gguf", spec)
    if entries:
        insert_entries(path, entries)
    return open_model(path)


def insert_entries(path: Path, entries: tuple[bytes, ...]) -> None:
    """Put entries in front of a file's metadata, in steps of its alignment."""
    data = path.read_bytes()
    tensors, keys = struct.unpack_from("<QQ", data, 8)
    added = b"".join(entries)
    filler = gb.text("filler", "x" * (-(len(added) + len(gb.text("filler", ""))) % 32))
    head = data[:8] + struct.pack("<QQ", tensors, keys + len(entries) + 1)
    path.write_bytes(head + added + filler + data[24:])


@pytest.mark.parametrize("name", ["key_length_swa", "value_length_swa"])
def test_sliding_layers_with_lengths_of_their_own_are_refused(
    tmp_path: Path, name: str
) -> None:
    entry = gb.u32(f"gemma3.attention.{name}", 16)
    with pytest.raises(RefusedError, match=f"{name} is 16; only 32"):
        check_cut(gemma(tmp_path, entry), 1)


def test_a_window_pattern_of_another_length_is_refused(tmp_path: Path) -> None:
    spec = attrs.evolve(GEMMA3, window_pattern=(True,) * 11)
    model = gemma(tmp_path, spec=spec)
    with pytest.raises(RefusedError, match="holds 11 values for 12 layers"):
        check_cut(model, 1)


SIXTY_TWO = RandomModel(
    architecture="gemma3", layers=62, width=32, heads=2, kv_heads=1, feed_forward=32
)


def test_62_layers_of_gemma3_cannot_be_cut_when_their_scale_differs(
    tmp_path: Path,
) -> None:
    spec = attrs.evolve(SIXTY_TWO, key_length=32)
    model = open_model(write_random_model(tmp_path / "m.gguf", spec))
    for at in (1, 31, 61):
        with pytest.raises(RefusedError, match=r"1/sqrt\(32\) instead of 1/sqrt\(16\)"):
            check_cut(model, at)
    assert refused_reason(model, 0, 62) is None


def test_62_layers_of_gemma3_can_be_cut_when_the_scales_are_equal(
    tmp_path: Path,
) -> None:
    model = open_model(write_random_model(tmp_path / "m.gguf", SIXTY_TWO))
    check_cut(model, 31)


def test_a_slice_of_62_layers_is_refused_when_its_scale_would_differ(
    tmp_path: Path,
) -> None:
    spec = attrs.evolve(SIXTY_TWO, layers=64, key_length=32)
    model = open_model(write_random_model(tmp_path / "m.gguf", spec))
    for start in (0, 1, 2):
        assert "1/sqrt(16) instead of 1/sqrt(32)" in (
            refused_reason(model, start, start + 62) or ""
        )
    assert refused_reason(model, 0, 61) is None
    assert (
        refused_reason(model, 0, 62, rules=SliceRules(refuse_other_scale=False)) is None
    )


def test_a_refusal_is_not_a_broken_model(tmp_path: Path) -> None:
    model = opened(tmp_path, TinyLlama(extra_tensors={"x": (8,)}))
    with pytest.raises(RefusedError) as caught:
        check_cut(model, 1)
    assert not isinstance(caught.value, ModelError)
    assert str(caught.value).startswith(f"{model.path}: ")
