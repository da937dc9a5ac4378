"""A slice reads the same however it is read, and never from another file."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.errors import ModelError
from skippyd.model.gguf_model import open_model
from skippyd.model.slicing import ModelSlice, slice_model
from skippyd.model.source import FileSource, write_slice
from support.gguf_bytes import TinyLlama


if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def middle(tmp_path_factory: pytest.TempPathFactory) -> ModelSlice:
    folder = tmp_path_factory.mktemp("source")
    model = open_model(TinyLlama(width=16).write_parts(folder, 3))
    return slice_model(model, 1, 2)


def written(model_slice: ModelSlice) -> bytes:
    file = io.BytesIO()
    write_slice(model_slice, file)
    return file.getvalue()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count, not paths


@given(st.data())
def test_any_piece_is_that_piece_of_the_whole(
    middle: ModelSlice, data: st.DataObject
) -> None:
    whole = written(middle)
    offset = data.draw(st.integers(0, len(whole) + 10))
    size = data.draw(st.integers(0, len(whole)))
    buffer = bytearray(size)
    with FileSource(middle) as source:
        count = source.read_into(offset, memoryview(buffer))
    assert bytes(buffer[:count]) == whole[offset : offset + size]


def test_a_written_slice_has_its_size(middle: ModelSlice) -> None:
    assert len(written(middle)) == middle.total_bytes


def test_descriptors_are_closed(middle: ModelSlice) -> None:
    before = open_descriptors()
    with FileSource(middle) as source:
        assert open_descriptors() == before + len(middle.parts)
        assert len(source.descriptors) == len(middle.parts)
    assert open_descriptors() == before


def test_a_replaced_part_is_refused_and_nothing_stays_open(tmp_path: Path) -> None:
    described = slice_model(open_model(TinyLlama().write_parts(tmp_path, 3)), 0, 2)
    last = described.parts[-1]
    last.write_bytes(last.read_bytes() + b"x")
    before = open_descriptors()
    with pytest.raises(ModelError, match="was replaced or changed"):
        written(described)
    assert open_descriptors() == before


def test_a_file_that_shrinks_under_the_source_is_an_error(tmp_path: Path) -> None:
    path = TinyLlama().write(tmp_path / "m.gguf")
    described = slice_model(open_model(path), 0, 3)
    with FileSource(described) as source:
        os.truncate(path, 2000)
        with pytest.raises(ModelError, match="became shorter while it was in use"):
            source.read_into(0, memoryview(bytearray(described.total_bytes)))
