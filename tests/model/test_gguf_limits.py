"""Limits stop where they say: the last allowed value passes, the next does not."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ModelError
from skippyd.model.gguf_limits import (
    MAX_ARRAY_STRINGS,
    MAX_KEY_BYTES,
    MAX_STRING_BYTES,
    MAX_TENSOR_NAME_BYTES,
)
from skippyd.model.gguf_reader import read_header
from skippyd.model.header_window import open_part
from skippyd.units import MIB
from support import gguf_bytes as gb


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.model.gguf_reader import GgufHeader


def read(path: Path) -> GgufHeader:
    descriptor, part = open_part(path)
    try:
        return read_header(descriptor, part, 0)
    finally:
        os.close(descriptor)


def zeros_behind(path: Path, head: bytes, size: int) -> Path:
    """A file that begins with `head` and goes on with `size` zero bytes, all holes."""
    path.write_bytes(head)
    os.truncate(path, len(head) + size)
    return path


def test_a_key_may_have_256_bytes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(gb.gguf([gb.u32("k" * MAX_KEY_BYTES, 1)]))
    assert list(read(path).entries) == ["k" * 256]


def test_a_tensor_name_may_have_63_bytes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    name = "n" * MAX_TENSOR_NAME_BYTES
    path.write_bytes(gb.gguf([], [gb.tensor_row(name)], bytes(128)))
    assert [tensor.name for tensor in read(path).tensors] == ["n" * 63]


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_alignments_from_8_to_4096_are_read(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "f"
    entries = [gb.u32("general.alignment", alignment)]
    path.write_bytes(
        gb.gguf(entries, [gb.tensor_row("a")], bytes(128), alignment=alignment)
    )
    header = read(path)
    assert header.alignment == alignment
    assert header.tensors[0].file_offset % alignment == 0


def test_alignment_8192_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(gb.gguf([gb.u32("general.alignment", 8192)]))
    with pytest.raises(ModelError, match="alignment is 8192"):
        read(path)


def test_one_string_more_than_16_mib_is_refused_unread(tmp_path: Path) -> None:
    size = MAX_STRING_BYTES + 1
    head = gb.gguf([gb.entry("k", gb.STRING, struct.pack("<Q", size))], alignment=1)
    path = zeros_behind(tmp_path / "f", head, size)
    tracemalloc.start()
    with pytest.raises(ModelError, match="too long"):
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * MIB


def test_an_array_string_of_more_than_16_mib_is_refused(tmp_path: Path) -> None:
    size = MAX_STRING_BYTES + 1
    head = gb.gguf([gb.array("k", gb.STRING, 1, struct.pack("<Q", size))], alignment=1)
    path = zeros_behind(tmp_path / "f", head, size)
    with pytest.raises(ModelError, match=f"a string of {size} bytes"):
        read(path)


@pytest.mark.slow
def test_texts_that_add_up_to_more_than_32_mib_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    big = b"x" * (11 * MIB)
    path.write_bytes(gb.gguf([gb.text(f"k{i}", big) for i in range(3)]))
    with pytest.raises(ModelError, match="too long"):
        read(path)


def test_array_strings_that_add_up_to_more_than_512_mib_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "f"
    size = 16 * MIB
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 1))
        file.write(gb.array("k", gb.STRING, 33, b""))
        for _ in range(33):
            file.write(struct.pack("<Q", size))
            file.seek(size, os.SEEK_CUR)
        file.truncate()
    with pytest.raises(ModelError, match="bytes; the limit is 536870912"):
        read(path)


def test_more_than_2_mi_array_strings_are_refused_before_the_walk(
    tmp_path: Path,
) -> None:
    count = MAX_ARRAY_STRINGS + 1
    head = gb.gguf([gb.array("k", gb.STRING, count, b"")], alignment=1)
    path = zeros_behind(tmp_path / "f", head, 8 * count)
    started = time.process_time()
    with pytest.raises(ModelError, match="strings to 2097153"):
        read(path)
    assert time.process_time() - started < 0.1


@pytest.mark.slow
def test_the_most_strings_there_may_be_take_less_than_two_seconds(
    tmp_path: Path,
) -> None:
    head = gb.gguf([gb.array("k", gb.STRING, MAX_ARRAY_STRINGS, b"")], alignment=1)
    path = zeros_behind(tmp_path / "f", head, 8 * MAX_ARRAY_STRINGS)
    started = time.process_time()
    read(path)
    assert time.process_time() - started < 2
