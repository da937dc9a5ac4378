from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skippyd.units import GIB, KIB, MIB, TIB, ceil_div, round_up


def test_units_are_powers_of_1024() -> None:
    assert (KIB, MIB, GIB, TIB) == (2**10, 2**20, 2**30, 2**40)


@given(st.integers(0, 2**70), st.integers(1, 2**40))
def test_rounding_up_is_exact_for_any_size(value: int, step: int) -> None:
    quotient = ceil_div(value, step)
    assert (quotient - 1) * step < value <= quotient * step
    assert round_up(value, step) == quotient * step
