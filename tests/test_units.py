from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.units import (
    GIB,
    KIB,
    MIB,
    TIB,
    ceil_div,
    counted,
    format_bytes,
    round_up,
)


def test_units_are_powers_of_1024() -> None:
    assert (KIB, MIB, GIB, TIB) == (2**10, 2**20, 2**30, 2**40)


@given(st.integers(0, 2**70), st.integers(1, 2**40))
def test_rounding_up_is_exact_for_any_size(value: int, step: int) -> None:
    quotient = ceil_div(value, step)
    assert (quotient - 1) * step < value <= quotient * step
    assert round_up(value, step) == quotient * step


@pytest.mark.parametrize(
    ("size", "shown", "needed"),
    [
        (0, "0 B", "0 B"),
        (1023, "1023 B", "1023 B"),
        (KIB, "1.00 KiB", "1.00 KiB"),
        (KIB + 1, "1.00 KiB", "1.01 KiB"),
        (10 * MIB, "10.0 MiB", "10.0 MiB"),
        (10 * MIB - 1, "9.99 MiB", "10.00 MiB"),
        (100 * GIB, "100 GiB", "100 GiB"),
        (100 * GIB + 1, "100 GiB", "101 GiB"),
        (5000 * TIB, "5000 TiB", "5000 TiB"),
        (-3 * GIB, "-3.00 GiB", "-3.00 GiB"),
    ],
)
def test_sizes_for_people_have_three_digits(size: int, shown: str, needed: str) -> None:
    assert format_bytes(size) == shown
    assert format_bytes(size, is_need=True) == needed


@given(st.integers(0, 2**60))
def test_a_need_is_never_written_smaller_than_it_is(size: int) -> None:
    number, unit = format_bytes(size, is_need=True).split()
    units = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB}
    hundredths = round(float(number) * 100)
    assert hundredths * units[unit] >= size * 100


def test_a_count_goes_with_its_noun() -> None:
    assert [counted(n, "lane") for n in (0, 1, 2, 4_096)] == [
        "0 lanes",
        "1 lane",
        "2 lanes",
        "4,096 lanes",
    ]
