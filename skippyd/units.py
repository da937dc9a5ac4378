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
