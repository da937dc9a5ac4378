"""Reading configuration files: bounded, and strict where the parsers are lenient."""

from __future__ import annotations

import json
import math
import tomllib
from typing import TYPE_CHECKING

from skippyd.config.complaints import Complaint, InvalidConfigError, shorten
from skippyd.errors import ConfigError
from skippyd.units import MIB


if TYPE_CHECKING:
    from pathlib import Path
    from typing import NoReturn

DOCUMENT_MAX_BYTES = MIB
NESTING_MAX = 64
_LONGEST_INTEGER_DIGITS = 20  # the digits of 2**64 - 1


def read_document(path: Path) -> str:
    """Read a configuration file as UTF-8 text.

    Raises:
        ConfigError: When it cannot be read, is too large or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(DOCUMENT_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror or error}"
        ) from error
    return decode_document(data, source=str(path))


def decode_document(data: bytes, *, source: str) -> str:
    """Check size and encoding of a document's bytes.

    Raises:
        ConfigError: When it is too large or not UTF-8.
    """
    if len(data) > DOCUMENT_MAX_BYTES:
        raise ConfigError(
            f"{source}: is larger than {DOCUMENT_MAX_BYTES} bytes; "
            "this is not a configuration file"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{source}: is not UTF-8 at byte {error.start}; save it as UTF-8"
        ) from error


def parse_json(text: str, *, source: str) -> object:
    """Parse JSON; duplicate keys, NaN, infinities and deep nesting are refused.

    Raises:
        ConfigError: With line and column where the parser knows them.
    """
    _check_nesting(text, source)
    try:
        value: object = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            parse_int=_bounded_integer,
        )
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{source}: line {error.lineno} column {error.colno}: {error.msg}"
        ) from error
    except InvalidConfigError as error:
        raise InvalidConfigError(error.complaints, source) from error
    return value


def parse_toml(text: str, *, source: str) -> dict[str, object]:
    """Parse TOML.

    Raises:
        ConfigError: With the parser's line and column.
    """
    _check_nesting(text, source)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: is not valid TOML: {error}") from error


def _check_nesting(text: str, source: str) -> None:
    # Brackets inside strings count as well: nothing honest comes near the limit, and
    # a scan that knew strings would be a second parser.
    depth = 0
    for character in text:
        if character in "[{":
            depth += 1
            if depth > NESTING_MAX:
                raise ConfigError(f"{source}: is nested deeper than {NESTING_MAX}")
        elif character in "]}":
            depth -= 1


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document: dict[str, object] = {}
    for key, value in pairs:
        if key in document:
            raise InvalidConfigError([Complaint(shorten(key), "is given twice")])
        document[key] = value
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidConfigError([Complaint("", f"{name} is not a JSON number")])


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidConfigError([Complaint("", f"{shorten(text)} is out of range")])
    return value


def _bounded_integer(text: str) -> int:
    if len(text.lstrip("-")) > _LONGEST_INTEGER_DIGITS:
        raise InvalidConfigError([Complaint("", f"{shorten(text)} is out of range")])
    return int(text)
