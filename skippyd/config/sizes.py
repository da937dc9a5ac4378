"""Sizes in bytes as people write them in TOML: `80GiB`, `1.5TB` or a plain integer."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NewType

from skippyd.config.complaints import show
from skippyd.errors import ConfigError
from skippyd.units import GIB, KIB, MIB, TIB


SizeBytes = NewType("SizeBytes", int)

SIZE_MAX_BYTES = 2**63 - 1
_UNITS_BYTES = {
    "KiB": KIB,
    "MiB": MIB,
    "GiB": GIB,
    "TiB": TIB,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?(" + "|".join(_UNITS_BYTES) + ")")


def parse_size_bytes(value: object) -> SizeBytes:
    """Read a size: an integer of bytes, or a number with a unit of the contract.

    Raises:
        ConfigError: For anything else, a fraction of a byte, a negative or absurd size.
    """
    if isinstance(value, str):
        return _check_range(_parse_text(value), value)
    if isinstance(value, int) and not isinstance(value, bool):
        return _check_range(value, value)
    raise ConfigError(_advice(value))


def _parse_text(text: str) -> int:
    matched = _SIZE.fullmatch(text)
    if matched is None:
        raise ConfigError(_advice(text))
    # A fraction, because 1.1 GiB as a float is not the number that was written.
    size = Fraction(matched[1]) * _UNITS_BYTES[matched[2]]
    if size.denominator != 1:
        raise ConfigError(f"{show(text)} is not a whole number of bytes")
    return size.numerator


def _check_range(size_bytes: int, written: object) -> SizeBytes:
    if not 0 <= size_bytes <= SIZE_MAX_BYTES:
        raise ConfigError(f"{show(written)} is outside 0 to {SIZE_MAX_BYTES} bytes")
    return SizeBytes(size_bytes)


def _advice(value: object) -> str:
    return (
        f"{show(value)} is not a size; write an integer of bytes or a number with one "
        f'of {", ".join(_UNITS_BYTES)}, as in "80GiB"'
    )
