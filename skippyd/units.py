"""Sizes and small integer arithmetic shared by planner, codec and reader."""

from __future__ import annotations


KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB

I32_MAX = 2**31 - 1
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1


def ceil_div(dividend: int, divisor: int) -> int:
    """Divide non-negative integers, rounding up."""
    return -(-dividend // divisor)


def round_up(value: int, multiple: int) -> int:
    """Smallest multiple of `multiple` that is at least `value`."""
    return ceil_div(value, multiple) * multiple


def counted(count: int, noun: str) -> str:
    """Write a count with its noun, of which an s makes many: `1 lane`, `4 lanes`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_UNITS_BYTES = (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB))


def format_bytes(size_bytes: int, *, is_need: bool = False) -> str:
    """Write a size for people with three digits: `512 B`, `9.50 MiB`, `79.6 GiB`.

    Args:
        size_bytes: The size; a negative one keeps its sign.
        is_need: Round up, so that what is written is enough.
    """
    if size_bytes < 0:
        return f"-{format_bytes(-size_bytes, is_need=is_need)}"
    for name, unit in _UNITS_BYTES:
        if size_bytes >= unit:
            digits = 2 - min(2, len(str(size_bytes // unit)) - 1)
            scaled = size_bytes * 10**digits
            steps = ceil_div(scaled, unit) if is_need else scaled // unit
            whole, rest = divmod(steps, 10**digits)
            return f"{whole}.{rest:0{digits}} {name}" if digits else f"{whole} {name}"
    return f"{size_bytes} B"
