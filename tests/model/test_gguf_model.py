"""A model over one or more files opens whole or not at all."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skippyd.errors import ModelError, SkippyError
from skippyd.model.facts import model_facts
from skippyd.model.gguf_model import open_model
from skippyd.model.slicing import slice_model
from support import gguf_bytes as gb
from support.gguf_bytes import TinyLlama, part_path


if TYPE_CHECKING:
    from pathlib import Path


def rewrite_part(folder: Path, index: int, count: int, entries: list[bytes]) -> None:
    tensors = {} if index == 0 else {f"blk.9.extra{index}.weight": (4,)}
    part_path(folder, index, count).write_bytes(gb.packed(entries, tensors))


def test_a_single_file_opens(tmp_path: Path) -> None:
    model = open_model(TinyLlama().write(tmp_path / "m.gguf"))
    assert model.architecture == "llama"
    assert model.layer_count == 3
    assert model.parts == (tmp_path / "m.gguf",)
    assert len(model.tensors) == 3 * 9 + 2


def test_tensor_ranges_hold_the_tensors(tmp_path: Path) -> None:
    path = TinyLlama().write(tmp_path / "m.gguf")
    data = path.read_bytes()
    numbers = [
        data[t.file_offset : t.file_offset + t.nbytes] for t in open_model(path).tensors
    ]
    joined = memoryview(b"".join(numbers)).cast("f").tolist()
    assert joined == list(range(len(joined)))


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_split_model_opens_by_its_first_part(tmp_path: Path, count: int) -> None:
    whole = open_model(TinyLlama().write(tmp_path / "m.gguf"))
    model = open_model(TinyLlama().write_parts(tmp_path, count))
    assert len(model.parts) == count
    assert [t.name for t in model.tensors] == [t.name for t in whole.tensors]
    assert {t.part for t in model.tensors} == set(range(1, count))


def test_another_part_is_refused_by_naming_the_first(tmp_path: Path) -> None:
    TinyLlama().write_parts(tmp_path, 3)
    with pytest.raises(ModelError, match=r"give tiny-00001-of-00003\.gguf"):
        open_model(part_path(tmp_path, 1, 3))


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    first = TinyLlama().write_parts(tmp_path, 4)
    part_path(tmp_path, 2, 4).unlink()
    with pytest.raises(ModelError, match=r"1 of 4 parts .* tiny-00003-of-00004"):
        open_model(first)


def test_a_renamed_first_part_is_refused(tmp_path: Path) -> None:
    first = TinyLlama().write_parts(tmp_path, 3)
    renamed = first.rename(tmp_path / "model.gguf")
    with pytest.raises(ModelError, match=r"not named \.\.\.-00001-of-00003\.gguf"):
        open_model(renamed)


def test_a_part_of_another_model_is_refused(tmp_path: Path) -> None:
    first = TinyLlama().write_parts(tmp_path, 3)
    entries = [gb.u16("split.no", 2), gb.text("general.architecture", "qwen2")]
    rewrite_part(tmp_path, 2, 3, entries)
    with pytest.raises(ModelError, match=r"00003-of-00003.*is qwen2 where"):
        open_model(first)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "split.no is None"),
        ([gb.u16("split.no", 1)], "split.no is 1"),
        ([gb.text("split.no", "2")], "split.no is not an integer"),
        ([gb.u16("split.no", 2), gb.u16("split.count", 4)], "split.count is 4"),
        ([gb.u16("split.no", 2)], "split.tensors.count is 29, the parts hold"),
    ],
)
def test_parts_that_disagree_are_refused(
    tmp_path: Path, entries: list[bytes], message: str
) -> None:
    first = TinyLlama().write_parts(tmp_path, 3)
    rewrite_part(tmp_path, 2, 3, entries)
    with pytest.raises(ModelError, match=message):
        open_model(first)


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    first = TinyLlama().write_parts(tmp_path, 3)
    twice = gb.packed([gb.u16("split.no", 2)], {"token_embd.weight": (8, 5)})
    part_path(tmp_path, 2, 3).write_bytes(twice)
    with pytest.raises(ModelError, match=r"'token_embd\.weight' is in another part"):
        open_model(first)


def test_a_broken_part_is_named(tmp_path: Path) -> None:
    first = TinyLlama().write_parts(tmp_path, 3)
    part_path(tmp_path, 1, 3).write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"00002-of-00003\.gguf: truncated"):
        open_model(first)


def test_too_many_parts_are_refused_before_any_is_opened(tmp_path: Path) -> None:
    entries = (gb.u16("split.count", 65_535), gb.u16("split.no", 0))
    path = tmp_path / "m-00001-of-65535.gguf"
    TinyLlama(extra_entries=entries).write(path)
    with pytest.raises(ModelError, match="split into 65535 files, the limit is 1024"):
        open_model(path)


def test_one_file_that_says_it_is_split_into_one_opens(tmp_path: Path) -> None:
    entries = (gb.u16("split.count", 1), gb.u16("split.no", 0))
    path = TinyLlama(extra_entries=entries).write(tmp_path / "m.gguf")
    assert open_model(path).parts == (path,)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (None, "'general.architecture' is missing"),
        (gb.u32("general.architecture", 1), "general.architecture is not a string"),
    ],
)
def test_a_file_without_an_architecture_is_refused(
    tmp_path: Path, entry: bytes | None, message: str
) -> None:
    tiny = TinyLlama(replaced={"general.architecture": entry})
    with pytest.raises(ModelError, match=message):
        open_model(tiny.write(tmp_path / "m.gguf"))


def test_integer_keys_are_integers_or_an_error(tmp_path: Path) -> None:
    entries = (
        gb.text("llama.a", "x"),
        gb.entry("llama.b", gb.BOOL, b"\x01"),
        gb.entry("llama.c", gb.INT32, b"\xff\xff\xff\xff"),
    )
    model = open_model(TinyLlama(extra_entries=entries).write(tmp_path / "m.gguf"))
    for name in "abc":
        with pytest.raises(ModelError, match=f"'llama.{name}' is"):
            model.optional_int(name)
    assert model.optional_int("d") is None
    with pytest.raises(ModelError, match=r"'llama\.d' is missing"):
        model.required_int("d")


def test_arrays_are_read_from_the_file(tmp_path: Path) -> None:
    entries = (gb.u32_array("llama.x", [4, 5, 6]), gb.text_array("llama.y", ["a"]))
    model = open_model(TinyLlama(extra_entries=entries).write(tmp_path / "m.gguf"))
    assert model.array(model.metadata["llama.x"]) == (4, 5, 6)
    with pytest.raises(ModelError, match=r"'llama\.y' is not an array of numbers"):
        model.array(model.metadata["llama.y"])


def test_an_array_longer_than_any_model_is_not_read(tmp_path: Path) -> None:
    entries = (gb.u32_array("llama.x", [0] * 513),)
    model = open_model(TinyLlama(extra_entries=entries).write(tmp_path / "m.gguf"))
    with pytest.raises(ModelError, match="not an array of numbers per layer"):
        model.array(model.metadata["llama.x"])


def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    entries = (gb.u32_array("llama.x", [4, 5, 6]),)
    tiny = TinyLlama(extra_entries=entries)
    model = open_model(tiny.write(tmp_path / "m.gguf"))
    tiny.write(tmp_path / "other.gguf").replace(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match="the file was replaced"):
        model.array(model.metadata["llama.x"])


GEMMA = attrs.evolve(
    TinyLlama(),
    architecture="gemma3",
    extra_entries=(
        gb.u32("gemma3.attention.sliding_window", 4),
        gb.u32_array("gemma3.attention.sliding_window_pattern", [1, 0, 1]),
        gb.u32("gemma3.attention.key_length", 4),
    ),
    extra_tensors={
        f"blk.{layer}.{name}.weight": (4 if "attn_" in name else 8,)
        for layer in range(3)
        for name in (
            "attn_q_norm",
            "attn_k_norm",
            "post_attention_norm",
            "post_ffw_norm",
        )
    },
)
GEMMA_BYTES = GEMMA.to_bytes()
GEMMA_HEADER_BYTES = GEMMA_BYTES.index(b"output_norm.weight")


def test_the_file_that_is_mutated_below_is_good(tmp_path: Path) -> None:
    model = open_model(GEMMA.write(tmp_path / "m.gguf"))
    assert slice_model(model, 1, 2).total_bytes > 0


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    changes=st.dictionaries(
        st.integers(0, GEMMA_HEADER_BYTES), st.integers(0, 255), min_size=1, max_size=4
    )
)
def test_a_changed_file_is_a_model_or_one_of_our_errors(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[int, int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    data = bytearray(GEMMA_BYTES)
    for position, value in changes.items():
        data[position] = value
    path.write_bytes(data)
    with suppress(SkippyError):
        model = open_model(path)
        assert model_facts(model).weight_bytes > 0
        assert slice_model(model, 1, 2).total_bytes < 2 * len(data)
