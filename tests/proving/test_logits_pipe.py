"""Records go through the pipe whole, and a broken writer is said at once."""

from __future__ import annotations

import os
import struct
import threading
import time

import numpy as np
import pytest

from skippyd.errors import SkippyError
from skippyd.proving.logits_pipe import PIPE_BYTES, LogitsReader, LogitsWriter


pytestmark = pytest.mark.usefixtures("no_leaks")


def row(seed: int, count: int = 50) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(count, dtype=np.float32)


def test_a_record_is_position_count_and_values() -> None:
    """The layout is fixed: u64 position, u32 count, f32 values, little-endian."""
    read_end, write_end = os.pipe()
    LogitsWriter(write_end)(2**40 + 1, np.array([1.0, -2.5], np.float32))
    expected = struct.pack("<QIff", 2**40 + 1, 2, 1.0, -2.5)
    assert os.read(read_end, 1000) == expected
    os.close(read_end)
    os.close(write_end)


def test_rows_come_back_by_position() -> None:
    with LogitsReader() as reader:
        writer = LogitsWriter(reader.write_end)
        for position in (7, 9, 8):
            writer(position, row(position))
        rows = reader.take([7, 8, 9], 5)
    assert [r.tobytes() for r in rows] == [row(p).tobytes() for p in (7, 8, 9)]


def test_a_row_larger_than_the_pipe_is_written_in_pieces() -> None:
    big = row(1, count=PIPE_BYTES // 2)
    with LogitsReader() as reader:
        LogitsWriter(reader.write_end)(0, big)
        [found] = reader.take([0], 5)
    assert found.tobytes() == big.tobytes()


def test_a_position_predicted_again_replaces_the_first() -> None:
    with LogitsReader() as reader:
        writer = LogitsWriter(reader.write_end)
        writer(3, row(1))
        writer(3, row(2))
        writer(4, row(3))
        reader.take([4], 5)  # everything before it has been read by now
        writer(3, row(4))
        [found] = reader.take([3], 5)
    assert found.tobytes() == row(4).tobytes()


def test_what_is_cleared_is_forgotten() -> None:
    with LogitsReader() as reader:
        writer = LogitsWriter(reader.write_end)
        writer(0, row(0))
        writer(1, row(1))
        reader.take([1], 5)
        writer(5, row(5))
        writer(6, row(6))
        while reader._missing([6]):
            threading.Event().wait(0.001)
        reader.clear()
        with pytest.raises(SkippyError, match=r"positions \[5\]: none within 0\.05 s"):
            reader.take([5], 0.05)


def test_a_writer_that_ends_ends_the_wait_at_once() -> None:
    with LogitsReader() as reader:
        writer = LogitsWriter(reader.write_end)
        writer(0, row(0))
        reader.close_write_end()
        begun = time.monotonic()
        with pytest.raises(
            SkippyError, match=r"positions \[1, 2\]: the writer is gone"
        ):
            reader.take([0, 1, 2], 30)
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize("kept", [1, 11, 12, 13, 60])
def test_a_record_that_is_cut_off_is_no_row(kept: int) -> None:
    whole = struct.pack("<QI", 4, 20) + bytes(80)
    with LogitsReader() as reader:
        os.write(reader.write_end, whole[:kept])
        reader.close_write_end()
        with pytest.raises(SkippyError, match="the writer ended within a record"):
            reader.take([4], 30)


def test_a_count_without_measure_is_refused_before_it_is_allocated() -> None:
    with LogitsReader() as reader:
        os.write(reader.write_end, struct.pack("<QI", 4, 2**32 - 1))
        with pytest.raises(SkippyError, match="a record claims 4294967295 values"):
            reader.take([4], 30)


def test_closing_twice_is_harmless() -> None:
    reader = LogitsReader()
    reader.close()
    reader.close()
    with pytest.raises(SkippyError, match="the writer is gone"):
        reader.take([0], 30)
