"""Weights in huge pages: which memory is meant, and that the kernel is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skippyd.model.gguf_model import open_model
from skippyd.model.slicing import slice_model
from skippyd.runtime.llama.huge_pages import (
    HUGE_PAGE_BYTES,
    HugePageWish,
    anonymous_ranges,
    new_ranges,
    whole_huge_pages,
)
from skippyd.runtime.llama.model import load_slice
from skippyd.runtime.settings import EngineSettings


MAPS = """\
1000-3000 r-xp 00000000 fe:00 77                         /usr/bin/python3
3000-4000 rw-p 00002000 fe:00 77                         /usr/bin/python3
5000-9000 rw-p 00000000 00:00 0                          [heap]
a000-c000 rw-p 00000000 00:00 0 
c000-d000 ---p 00000000 00:00 0 
d000-f000 rw-p 00000000 00:00 0 
"""  # noqa: W291 - so the kernel writes it
H = HUGE_PAGE_BYTES
HAS_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage").exists()


def wished_bytes() -> int:
    """Memory of this process for which huge pages were asked for."""
    total = size = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
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
    before = wished_bytes()
    wish.make()
    assert wished_bytes() == before


@pytest.mark.native
@pytest.mark.slow
def test_the_kernel_is_asked_for_the_weights_and_little_else(
    smollm2_path: Path,
) -> None:
    before = wished_bytes()
    model = open_model(smollm2_path)
    part = slice_model(model, 0, 10)
    with load_slice(part, EngineSettings()):
        asked = wished_bytes() - before
    if HAS_HUGE_PAGES:
        assert 0.9 * part.resident_tensor_bytes < asked
    assert asked < part.resident_tensor_bytes + 8 * HUGE_PAGE_BYTES
