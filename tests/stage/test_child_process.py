"""What a dead stage is remembered by."""

from __future__ import annotations

import os

import pytest

from skippyd.stage.child_process import (
    KEPT_LINES,
    LINE_MAX_BYTES,
    LogTail,
    describe_end,
    resident_bytes,
    stage_environment,
)


def test_lines_are_put_together_from_pieces() -> None:
    tail = LogTail()

    assert tail.feed(b"one\ntw") == ["one"]
    assert tail.feed(b"o\n\n  \nthree") == ["two"]
    assert tail.end() == ["three"]
    assert tail.end() == []
    assert tail.lines == ("one", "two", "three")


def test_the_cause_comes_first_and_the_last_lines_after_it() -> None:
    tail = LogTail()
    tail.feed(b"ggml.c:1: GGML_ASSERT(n > 0) failed\n")
    tail.feed(b"terminate called after throwing\n")
    for number in range(100):
        tail.feed(f"frame {number}\n".encode())

    assert tail.lines[0] == "ggml.c:1: GGML_ASSERT(n > 0) failed"
    assert tail.lines[1:] == tuple(f"frame {n}" for n in range(80, 100))
    assert len(tail.lines) == KEPT_LINES + 1


def test_an_endless_or_odd_line_is_cut_and_no_trouble() -> None:
    tail = LogTail()

    for _ in range(10):
        tail.feed(b"\xff" * 1_000)

    assert all(len(line) <= LINE_MAX_BYTES for line in tail.lines)
    assert len(tail.lines) == 10


@pytest.mark.parametrize(
    ("code", "said", "expected"),
    [
        (-9, b"", "stage-1 was ended by SIGKILL"),
        (-6, b"a\nb\n", "stage-1 was ended by SIGABRT; it said:\n  a\n  b"),
        (-200, b"", "stage-1 was ended by signal 200"),
        (70, b"a\n", "stage-1 exited with 70; it said:\n  a"),
        (6, b"x\nskippyd: cut 3 is not offered\n", "stage-1: cut 3 is not offered"),
    ],
)
def test_an_end_is_told_in_words(code: int, said: bytes, expected: str) -> None:
    tail = LogTail()
    tail.feed(said)

    assert describe_end("stage-1", code, tail) == expected


def test_memory_is_that_of_the_process_and_its_memory_files() -> None:
    before = resident_bytes(os.getpid())
    descriptor = os.memfd_create("ballast")
    try:
        os.write(descriptor, bytes(1 << 24))
        held = resident_bytes(os.getpid()) - before
    finally:
        os.close(descriptor)

    assert 1 << 23 < held < 1 << 26
    assert resident_bytes(2**22 + 1) == 0


def test_a_stage_does_not_start_a_debugger_when_it_aborts() -> None:
    assert stage_environment()["GGML_NO_BACKTRACE"] == "1"
    assert stage_environment()["PATH"] == os.environ["PATH"]
