"""Weights in huge pages: a wish for the memory that llama.cpp allocates to load into.

Every token reads all weights once. In pages of 4 KiB that is a page-table walk for each
of them, and in a virtual machine each walk is several; in pages of 2 MiB decoding
SmolLM2 is 5 to 7 % faster than from the mapped file (`skippyd bench`, engine_ratio).

Theory of operation. llama.cpp allocates all its buffers, then reports progress 0, then
reads the weights. What anonymous memory is there at that report and was not when the
load began is those buffers, still untouched; the kernel is asked to back it with huge
pages. It is a wish: where the kernel does not have them, all stays as it was, and so
does memory of an earlier load that the allocator gives out again.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
from pathlib import Path

import attrs


HUGE_PAGE_BYTES = 2 * 1024 * 1024
MAPS = Path("/proc/self/maps")
MAPS_FIELDS = 5
"""Fields of a line of `maps` without a name: range, rights, offset, device, inode."""

Range = tuple[int, int]

logger = logging.getLogger("skippyd.runtime")


@attrs.define
class HugePageWish:
    """One load's wish, made once, at its first report of progress.

    Args:
        before: Anonymous memory when the load began.
    """

    before: list[Range] = attrs.Factory(lambda: anonymous_ranges(_maps()))
    _is_made: bool = False

    def make(self) -> None:
        """Ask for huge pages behind what has been allocated since."""
        if self._is_made:
            return
        self._is_made = True
        for start, end in whole_huge_pages(
            new_ranges(self.before, anonymous_ranges(_maps()))
        ):
            _advise(start, end)


def anonymous_ranges(maps: str) -> list[Range]:
    """Writable private memory behind no file, by address, of a text like `maps`."""
    ranges = []
    for line in maps.splitlines():
        fields = line.split()
        if len(fields) != MAPS_FIELDS or fields[1] != "rw-p":
            continue
        start, _dash, end = fields[0].partition("-")
        ranges.append((int(start, 16), int(end, 16)))
    return ranges


def new_ranges(before: list[Range], after: list[Range]) -> list[Range]:
    """What of `after` is not in `before`; both are sorted."""
    found = []
    for start, end in after:
        rest = start
        for known_start, known_end in before:
            if known_end <= rest or known_start >= end:
                continue
            if known_start > rest:
                found.append((rest, known_start))
            rest = known_end
        if rest < end:
            found.append((rest, end))
    return found


def whole_huge_pages(ranges: list[Range]) -> list[Range]:
    """The huge pages that lie wholly in the ranges."""
    aligned = [
        (-(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES, end - end % HUGE_PAGE_BYTES)
        for start, end in ranges
    ]
    return [(start, end) for start, end in aligned if start < end]


def _maps() -> str:
    try:
        return MAPS.read_text()
    except OSError as error:
        logger.debug("no huge pages for the weights: %s", error)
        return ""


def _advise(start: int, end: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    address, length = ctypes.c_void_p(start), ctypes.c_size_t(end - start)
    if libc.madvise(address, length, mmap.MADV_HUGEPAGE) != 0:
        reason = os.strerror(ctypes.get_errno())
        logger.debug("no huge pages for %d bytes of weights: %s", end - start, reason)
