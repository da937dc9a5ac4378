"""Weights in huge pages: which memory is meant, and that the kernel is asked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from skippyd.runtime.llama.huge_pages import (
    HUGE_PAGE_BYTES,
    HugePageWish,
    anonymous_ranges,
    new_ranges,
    whole_huge_pages,
)


MAPS = """\
1000-3000 r-xp 00000000 fe:00 77                         /usr/bin/python3
3000-4000 rw-p 00002000 fe:00 77                         /usr/bin/python3
5000-9000 rw-p 00000000 00:00 0                          [heap]
a000-c000 rw-p 00000000 00:00 0 
c000-d000 ---p 00000000 00:00 0 
d000-f000 rw-p 00000000 00:00 0 
"""  # noqa: W291 - so the kernel writes it
H = HUGE_PAGE_BYTES
SMAPS = Path("/proc/self/smaps")
HAS_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage").exists()


def wished_bytes(smaps: str) -> int:
    """Memory for which huge pages were asked for, of a text like `smaps`."""
    total = size = 0
    for line in smaps.splitlines():
        if line.startswith("Size:"):
            size = int(line.split()[1]) * 1024
        elif line.startswith("VmFlags:") and re.search(r"\bhg\b", line):
            total += size
    return total


def test_anonymous_memory_is_writable_private_and_behind_nothing() -> None:
    assert anonymous_ranges(MAPS) == [(0xA000, 0xC000), (0xD000, 0xF000)]


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ([], [(1, 5)], [(1, 5)]),
        ([(1, 5)], [(1, 5)], []),
        ([(1, 5)], [(1, 9)], [(5, 9)]),
        ([(4, 6)], [(1, 9)], [(1, 4), (6, 9)]),
        ([(2, 3), (5, 6)], [(1, 9)], [(1, 2), (3, 5), (6, 9)]),
        ([(1, 5)], [(3, 4)], []),
        ([(1, 3), (20, 30)], [(2, 5), (10, 12)], [(3, 5), (10, 12)]),
    ],
)
def test_only_what_was_not_there_is_new(
    before: list[tuple[int, int]],
    after: list[tuple[int, int]],
    new: list[tuple[int, int]],
) -> None:
    assert new_ranges(before, after) == new


def test_pages_partly_outside_are_left_alone() -> None:
    ranges = [(H - 1, 3 * H + 5), (4 * H + 1, 5 * H), (6 * H, 7 * H)]
    assert whole_huge_pages(ranges) == [(H, 3 * H), (6 * H, 7 * H)]


def test_a_wish_is_made_once() -> None:
    wish = HugePageWish(before=[(0, 2**64)])
    wish.make()
    wish.before = []  # all memory would be new now
    before = wished_bytes(SMAPS.read_text())
    wish.make()
    assert wished_bytes(SMAPS.read_text()) == before


LOAD = """
import sys
from pathlib import Path
from skippyd.model.gguf_model import open_model
from skippyd.model.slicing import slice_model
from skippyd.runtime.llama.model import load_slice
from skippyd.runtime.settings import EngineSettings

part = slice_model(open_model(Path(sys.argv[1])), 0, 10)
with load_slice(part, EngineSettings()):
    print(part.resident_tensor_bytes)
    print(Path("/proc/self/smaps").read_text())
"""


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.process
def test_the_kernel_is_asked_for_the_weights_and_little_else(
    smollm2_path: Path,
) -> None:
    """In a process of its own: an allocator gives memory of ended loads out again."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(smollm2_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    weights, _newline, smaps = done.stdout.partition("\n")
    asked = wished_bytes(smaps)
    if HAS_HUGE_PAGES:
        assert 0.9 * int(weights) < asked
    assert asked < int(weights) + 8 * HUGE_PAGE_BYTES
