"""Slices cover their virtual file, hold the right tensors, and compute exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skippyd.errors import RefusedError
from skippyd.model.gguf_model import GgufModel, open_model
from skippyd.model.gguf_types import TENSOR_TYPES_BY_NAME
from skippyd.model.slicing import FileRange, ModelSlice, Zeros, slice_model
from skippyd.model.source import write_slice
from support.gguf_bytes import TinyLlama
from support.random_models import (
    GEMMA3,
    LLAMA_EXPERTS,
    LLAMA_TIED,
    LLAMA_UNTIED,
    ZOO,
    RandomModel,
    write_random_model,
)
from support.raw_chain import (
    Settings,
    Trace,
    random_prompt,
    run_chain,
    run_unsplit,
)


if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, GgufModel]:
    folder = tmp_path_factory.mktemp("zoo")
    return {
        name: open_model(write_random_model(folder / f"{name}.gguf", spec))
        for name, spec in ZOO.items()
    }


def check_cover(described: ModelSlice) -> None:
    position = 0
    for segment in described.segments:
        assert segment.offset == position
        assert segment.length > 0
        if isinstance(segment.data, bytes):
            assert len(segment.data) == segment.length
        if isinstance(segment.data, FileRange):
            part = described.part_files[segment.data.part_index]
            assert segment.data.file_offset + segment.length <= part.file_bytes
        position += segment.length
    assert position == described.total_bytes


@pytest.mark.slow
@settings(deadline=None)
@given(data=st.data())
def test_segments_cover_any_slice_and_its_tensors_come_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("slices")
    tiny = TinyLlama(
        layers=data.draw(st.integers(1, 6)),
        width=data.draw(st.sampled_from([8, 32, 64, 128])),
        tied=data.draw(st.booleans()),
    )
    parts = data.draw(st.integers(1, 4))
    path = (
        tiny.write(folder / "m.gguf") if parts == 1 else tiny.write_parts(folder, parts)
    )
    model = open_model(path)
    start = data.draw(st.integers(0, tiny.layers - 1))
    end = data.draw(st.integers(start + 1, tiny.layers))
    described = slice_model(model, start, end)
    check_cover(described)
    with (folder / "s.gguf").open("wb") as file:
        write_slice(described, file)
    check_tensors(described, open_model(folder / "s.gguf"))


def check_tensors(described: ModelSlice, cut: GgufModel) -> None:
    """Each tensor of the written slice has the bytes of its original."""
    written = cut.path.read_bytes()
    assert len(cut.tensors) == len(described.resident_tensors)
    for original, copy in zip(described.resident_tensors, cut.tensors, strict=True):
        assert (copy.shape, copy.type) == (original.shape, original.type)
        data = written[copy.file_offset : copy.file_offset + copy.nbytes]
        if original.is_synthetic:
            assert data == bytes(original.nbytes)
        else:
            file = described.parts[original.part].read_bytes()
            end = original.file_offset + original.nbytes
            assert data == file[original.file_offset : end]


@pytest.mark.parametrize("name", ZOO)
def test_stages_together_hold_each_layer_tensor_once(
    zoo: dict[str, GgufModel], name: str
) -> None:
    model = zoo[name]
    stages = [slice_model(model, a, b) for a, b in ((0, 2), (2, 3), (3, 6))]
    if model.layer_count > 6:
        stages.append(slice_model(model, 6, model.layer_count))
    held = [
        tensor.name
        for stage in stages
        for tensor in stage.resident_tensors
        if tensor.name.startswith("blk.")
    ]
    assert held == [t.name for t in model.tensors if t.name.startswith("blk.")]


def names(described: ModelSlice) -> set[str]:
    """Tensors outside the layers; a synthetic one has its type behind its name."""
    return {
        f"{t.name}:{t.type.name}" if t.is_synthetic else t.name
        for t in described.resident_tensors
        if not t.name.startswith("blk.")
    }


def test_tied_stages_hold_the_embedding_where_it_is_used(
    zoo: dict[str, GgufModel],
) -> None:
    model = zoo["llama-tied"]
    norm = "output_norm.weight"
    assert names(slice_model(model, 0, 2)) == {"token_embd.weight", norm}
    assert names(slice_model(model, 2, 4)) == {"token_embd.weight:f32", norm}
    assert names(slice_model(model, 4, 6)) == {"token_embd.weight", norm}


def test_untied_stages_hold_the_output_at_the_end_only(
    zoo: dict[str, GgufModel],
) -> None:
    model = zoo["llama-untied"]
    norm = "output_norm.weight"
    assert names(slice_model(model, 0, 2)) == {"token_embd.weight", norm}
    assert names(slice_model(model, 2, 4)) == {"token_embd.weight:f32", norm}
    final = names(slice_model(model, 4, 6))
    assert final == {"token_embd.weight:q1_0", norm, "output.weight"}


def test_a_middle_stage_has_one_row_of_embedding(zoo: dict[str, GgufModel]) -> None:
    described = slice_model(zoo["llama-untied"], 2, 4)
    embedding = next(t for t in described.resident_tensors if t.is_synthetic)
    assert embedding.shape == (128, 1)
    assert embedding.nbytes == 4 * 128


@pytest.mark.parametrize(
    ("width", "kind"), [(8, "f16"), (32, "q4_0"), (64, "q2_0"), (128, "q1_0")]
)
def test_an_unread_embedding_is_declared_in_the_smallest_type_that_fits(
    tmp_path: Path, width: int, kind: str
) -> None:
    tiny = TinyLlama(width=width, tied=False, tokens=100)
    described = slice_model(open_model(tiny.write(tmp_path / "m.gguf")), 1, 3)
    declared = next(t for t in described.resident_tensors if t.is_synthetic)
    assert declared.type is TENSOR_TYPES_BY_NAME[kind]
    assert declared.shape == (width, 100)
    zeros = [s for s in described.segments if isinstance(s.data, Zeros)]
    assert [s.length for s in zeros] == [declared.nbytes]


def test_rope_factors_go_to_every_stage(zoo: dict[str, GgufModel]) -> None:
    model = zoo["llama-rope-factors"]
    for start, end in ((0, 2), (2, 4), (4, 6)):
        assert "rope_freqs.weight" in names(slice_model(model, start, end))


def test_neighbours_on_disk_are_one_range(zoo: dict[str, GgufModel]) -> None:
    described = slice_model(zoo["llama-tied"], 1, 5)
    big = [s for s in described.segments if s.length > 10_000]
    assert len(big) == 1


def test_a_slice_says_where_it_stands(zoo: dict[str, GgufModel]) -> None:
    model = zoo["llama-tied"]
    first, middle = slice_model(model, 0, 2), slice_model(model, 2, 5)
    whole = slice_model(model, 0, 6)
    assert (first.is_first, first.is_final) == (True, False)
    assert (middle.is_first, middle.is_final) == (False, False)
    assert (whole.is_first, whole.is_final) == (True, True)
    assert middle.layer_count == 3
    assert middle.capture_tensor == "l_out-2"
    assert whole.resident_tensor_bytes == sum(t.nbytes for t in model.tensors)


def test_a_range_that_is_not_offered_is_refused(zoo: dict[str, GgufModel]) -> None:
    with pytest.raises(RefusedError, match="out of range"):
        slice_model(zoo["llama-tied"], 3, 7)


native = pytest.mark.native
slow = pytest.mark.slow

References = dict[tuple[str, Settings], Trace]


@pytest.fixture(scope="module")
def references() -> References:
    return {}


def reference(
    references: References, name: str, model: GgufModel, shared: Settings
) -> tuple[list[int], Trace]:
    """The prompt, and what the unsplit file computes from it; computed once."""
    prompt = random_prompt(ZOO[name].token_count)
    key = (name, shared)
    if key not in references:
        references[key] = run_unsplit(model.path, prompt, shared)
    return prompt, references[key]


def check_exact(found: Trace, expected: Trace) -> None:
    assert found.difference(expected) == 0.0
    assert found.tokens == expected.tokens


@native
@pytest.mark.parametrize("name", ZOO)
def test_a_random_model_behaves_like_one(
    zoo: dict[str, GgufModel], references: References, name: str
) -> None:
    _, trace = reference(references, name, zoo[name], Settings())
    assert trace.logits.std() > 0.1
    assert len(set(trace.tokens)) >= 3


@native
@slow
@pytest.mark.parametrize("name", ZOO)
def test_two_stages_are_exact_at_every_cut(
    zoo: dict[str, GgufModel], references: References, name: str
) -> None:
    model = zoo[name]
    prompt, expected = reference(references, name, model, Settings())
    for at in range(1, model.layer_count):
        check_exact(run_chain(model, [at], prompt), expected)


@native
@slow
@pytest.mark.parametrize("name", ZOO)
def test_longer_chains_are_exact(
    zoo: dict[str, GgufModel], references: References, name: str
) -> None:
    model = zoo[name]
    prompt, expected = reference(references, name, model, Settings())
    every_layer = list(range(1, model.layer_count))
    for cuts in ([2, 4], [1, 5], every_layer, []):
        check_exact(run_chain(model, cuts, prompt), expected)


@native
@slow
@pytest.mark.parametrize("name", ["llama-tied", "llama-experts", "gemma3"])
def test_chains_are_exact_without_flash_attention_and_with_other_chunks(
    zoo: dict[str, GgufModel], references: References, name: str
) -> None:
    model = zoo[name]
    for shared in (Settings(flash_attention=0), Settings(chunk=40), Settings(chunk=7)):
        prompt, expected = reference(references, name, model, shared)
        found = run_chain(model, [2, 5], prompt, settings=shared)
        check_exact(found, expected)


@native
@slow
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("spec", [LLAMA_TIED, LLAMA_UNTIED, LLAMA_EXPERTS, GEMMA3])
def test_chains_with_a_vocabulary_are_exact(
    tmp_path: Path, spec: RandomModel, tied: bool
) -> None:
    spec = attrs.evolve(spec, with_tokenizer=True, tied=tied)
    path = write_random_model(tmp_path / "m.gguf", spec)
    prompt = random_prompt(spec.token_count)
    expected = run_unsplit(path, prompt)
    check_exact(run_chain(open_model(path), [2, 5], prompt), expected)


@native
@slow
@pytest.mark.parametrize("name", ["llama-untied", "gemma3-pattern"])
def test_chains_of_a_split_model_are_exact(tmp_path: Path, name: str) -> None:
    spec = attrs.evolve(ZOO[name], tensors_per_part=17)
    path = write_random_model(tmp_path / "m.gguf", spec)
    model = open_model(path)
    assert len(model.parts) > 3
    prompt = random_prompt(spec.token_count)
    expected = run_unsplit(path, prompt)
    for cuts in ([1], [4], [2, 4], []):
        check_exact(run_chain(model, cuts, prompt), expected)
