from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.config.sizes import SIZE_MAX_BYTES, parse_size_bytes
from skippyd.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "expected_bytes"),
    [
        (0, 0),
        (12, 12),
        ("80GiB", 80 * 2**30),
        ("80 GiB", 80 * 2**30),
        ("1.5TiB", 3 * 2**39),
        ("1KiB", 1024),
        ("3MiB", 3 * 2**20),
        ("1KB", 1000),
        ("1.5MB", 1_500_000),
        ("24GB", 24 * 10**9),
        ("2TB", 2 * 10**12),
        ("0.5KiB", 512),
    ],
)
def test_sizes_are_bytes_or_a_number_with_a_unit(
    written: object, expected_bytes: int
) -> None:
    assert parse_size_bytes(written) == expected_bytes


@pytest.mark.parametrize(
    "written",
    [
        True,
        1.0,
        None,
        [],
        "80",
        "80gib",
        "80G",
        "GiB",
        "-1GiB",
        "1,5GiB",
        "1e3MiB",
        " 1GiB",
        "1GiB\n",
        "٣GiB",
        "1  GiB",
    ],
)
def test_anything_else_is_no_size(written: object) -> None:
    with pytest.raises(ConfigError, match="is not a size; write an integer of bytes"):
        parse_size_bytes(written)


@pytest.mark.parametrize("written", [-1, 2**63, "9999999999TiB"])
def test_absurd_sizes_are_out_of_range(written: object) -> None:
    with pytest.raises(ConfigError, match="is outside 0 to"):
        parse_size_bytes(written)


def test_a_fraction_of_a_byte_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a whole number of bytes"):
        parse_size_bytes("0.3KiB")


def test_the_largest_size_is_allowed() -> None:
    assert parse_size_bytes(SIZE_MAX_BYTES) == 2**63 - 1


@given(st.integers(0, 2**20), st.sampled_from(["KiB", "MiB", "GiB", "TiB"]))
def test_whole_numbers_of_a_unit_are_exact(count: int, unit: str) -> None:
    power = {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[unit]
    assert parse_size_bytes(f"{count}{unit}") == count << power
