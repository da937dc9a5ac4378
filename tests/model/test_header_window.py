"""The window reads forward within the file and opens regular files only."""

from __future__ import annotations

import os
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ModelError
from skippyd.model.gguf_limits import WINDOW_BYTES
from skippyd.model.header_window import HeaderWindow, open_part


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def window_over(path: Path, data: bytes) -> Iterator[HeaderWindow]:
    path.write_bytes(data)
    descriptor, part = open_part(path)
    try:
        yield HeaderWindow(descriptor, part)
    finally:
        os.close(descriptor)


def test_values_are_read_across_window_borders(tmp_path: Path) -> None:
    data = bytes(range(256)) * (WINDOW_BYTES // 128)
    with window_over(tmp_path / "f", data) as window:
        taken = [window.take(1000, "x") for _ in range(len(data) // 1000)]
    assert b"".join(taken) == data[: len(data) // 1000 * 1000]


def test_skipping_does_not_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    descriptor, part = open_part(path)
    window = HeaderWindow(descriptor, part)
    window.skip((1 << 40) - 4, "x")
    assert window.take(4, "x") == bytes(4)
    assert window.bytes_left == 0
    os.close(descriptor)


def test_strings_are_stepped_over_across_window_borders(tmp_path: Path) -> None:
    texts = [b"x" * (7919 * i % 50_000) for i in range(300)]
    data = b"".join(struct.pack("<Q", len(t)) + t for t in texts)
    with window_over(tmp_path / "f", data + b"END!") as window:
        assert window.skip_strings(300, 1 << 20, "x") == sum(map(len, texts))
        assert window.take(4, "x") == b"END!"


@pytest.mark.parametrize("count", [5, 1 << 62])
def test_the_end_of_the_file_is_an_error_with_the_numbers(
    tmp_path: Path, count: int
) -> None:
    with window_over(tmp_path / "f", b"1234") as window:
        with pytest.raises(ModelError, match=f"truncated: a thing takes {count} bytes"):
            window.take(count, "a thing")
        with pytest.raises(ModelError, match="4 are left"):
            window.skip(count, "a thing")


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    with window_over(tmp_path / "f", b"12345678") as window:
        os.truncate(tmp_path / "f", 4)
        with pytest.raises(ModelError, match="became shorter"):
            window.take(8, "a thing")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no\.gguf: cannot open .*No such file"):
        open_part(tmp_path / "no.gguf")


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="not a regular file"):
        open_part(tmp_path / "pipe")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a regular file"):
        open_part(tmp_path)
