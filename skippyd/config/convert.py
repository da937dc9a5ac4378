"""Strict conversion between parsed documents and frozen values.

Nothing is coerced, no key is skipped, and every complaint carries its full path. A class
with rules between its fields raises `InvalidConfigError` from `__attrs_post_init__`; its
complaints come out under the path of that object.
"""

from __future__ import annotations

import math
import operator
from enum import Enum, IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, TypeVar, get_origin

import attrs
from cattrs import BaseValidationError, Converter, ForbiddenExtraKeysError
from cattrs.cols import homogenous_tuple_structure_factory
from cattrs.errors import ClassValidationError, IterableValidationError
from cattrs.gen import make_dict_structure_fn

from skippyd.config.complaints import (
    Complaint,
    InvalidConfigError,
    show,
    unknown_key,
)
from skippyd.config.endpoints import Endpoint, parse_endpoint
from skippyd.config.sizes import SizeBytes, parse_size_bytes
from skippyd.errors import ConfigError


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

_TEXT_MAX_CHARACTERS = 65_536


class Edge(Enum):
    """The syntax that a document came in; only TOML writes sizes with units."""

    JSON = "JSON"
    TOML = "TOML"


def structure(
    value: object,
    type_: type[T],
    *,
    source: str,
    edge: Edge = Edge.JSON,
    found: Sequence[Complaint] = (),
) -> T:
    """Turn a parsed document into a value of `type_`.

    Args:
        value: What the JSON or TOML parser gave.
        type_: An attrs class, or anything cattrs can build from strict parts.
        source: The file or place, named in front of each complaint.
        edge: Which syntax the document is written in.
        found: Complaints the caller has already; reported together with the new ones.

    Raises:
        InvalidConfigError: With all complaints, when there is at least one.
    """
    complaints = list(found)
    try:
        result = _CONVERTERS[edge].structure(value, type_)
    except (BaseValidationError, ConfigError) as error:
        complaints += _complaints(error)
    else:
        if not complaints:
            return result
    raise InvalidConfigError(complaints, source)


def unstructure(value: object) -> dict[str, object]:
    """Turn a frozen configuration value into the document it is written as."""
    document: dict[str, object] = _CONVERTERS[Edge.JSON].unstructure(value)
    return document


def _complaints(error: Exception) -> Iterator[Complaint]:
    match error:
        case ClassValidationError():
            noted, plain = error.group_exceptions()
            for inner, attribute in noted:
                yield from _below(inner, attribute.name)
        case IterableValidationError():
            numbered, plain = error.group_exceptions()
            for inner, item in numbered:
                yield from _below(inner, f"[{item.index}]")
        case _:
            yield from _plain_complaints(error)
            return
    for inner in plain:
        yield from _complaints(inner)


def _plain_complaints(error: Exception) -> Iterator[Complaint]:
    match error:
        case ForbiddenExtraKeysError():
            known = [field.name for field in attrs.fields(error.cl)]
            for key in sorted(error.extra_fields):
                yield unknown_key(key, known)
        case InvalidConfigError():
            yield from error.complaints
        case KeyError():
            yield Complaint("", "is required and missing")
        case ConfigError():
            yield Complaint("", str(error))
        case _:
            raise error


def _below(error: Exception, parent: str) -> Iterator[Complaint]:
    for complaint in _complaints(error):
        yield complaint.below(parent)


def _strict_bool(value: object, _: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ConfigError(f"expected true or false, found {show(value)}")


def _strict_int(value: object, _: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ConfigError(f"expected a whole number, found {show(value)}")


def _strict_float(value: object, _: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number):
            return number
    raise ConfigError(f"expected a finite number, found {show(value)}")


def _strict_text(value: object, _: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"expected a text, found {show(value)}")
    if len(value) > _TEXT_MAX_CHARACTERS:
        raise ConfigError(f"is longer than {_TEXT_MAX_CHARACTERS} characters")
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
        raise ConfigError("holds a NUL or half of a surrogate pair")
    return value


def _strict_bytes(value: object, _: object) -> bytes:
    text = _strict_text(value, str)
    try:
        return bytes.fromhex(text)
    except ValueError:
        # Not shown: bytes in a configuration are secrets.
        raise ConfigError("expected an even number of hexadecimal digits") from None


def _strict_endpoint(value: object, _: object) -> Endpoint:
    return parse_endpoint(_strict_text(value, str))


def _strict_enum(value: object, type_: type[Enum]) -> Enum:
    for member in type_:
        if member.value == value and type(value) is type(member.value):
            return member
    choices = ", ".join(str(member.value) for member in type_)
    raise ConfigError(f"expected one of {choices}, found {show(value)}")


def _json_size(value: object, _: object) -> SizeBytes:
    return parse_size_bytes(_strict_int(value, int))


def _toml_size(value: object, _: object) -> SizeBytes:
    return parse_size_bytes(value)


def _build_converter(edge: Edge) -> Converter:
    converter = Converter(forbid_extra_keys=True)
    strict: list[tuple[Any, Callable[[Any, Any], object]]] = [
        (bool, _strict_bool),
        (int, _strict_int),
        (float, _strict_float),
        (str, _strict_text),
        (bytes, _strict_bytes),
        # Named too, or the hook of `str` would take every StrEnum.
        (StrEnum, _strict_enum),
        (IntEnum, _strict_enum),
        (Enum, _strict_enum),
        (Endpoint, _strict_endpoint),
        (SizeBytes, _toml_size if edge is Edge.TOML else _json_size),
    ]
    for type_, hook in strict:
        converter.register_structure_hook(type_, hook)
    converter.register_structure_hook_factory(_is_tuple, _tuple_hook(converter))
    converter.register_structure_hook_factory(attrs.has, _object_hook(converter))
    converter.register_unstructure_hook(Endpoint, str)
    converter.register_unstructure_hook(bytes, bytes.hex)
    converter.register_unstructure_hook(StrEnum, operator.attrgetter("value"))
    return converter


def _is_tuple(type_: object) -> bool:
    return get_origin(type_) is tuple


def _object_hook(
    converter: Converter,
) -> Callable[[type[Any]], Callable[[object, object], object]]:
    def make(type_: type[Any]) -> Callable[[object, object], object]:
        build = make_dict_structure_fn(type_, converter, _cattrs_forbid_extra_keys=True)

        def hook(value: object, target: object) -> object:
            if not isinstance(value, dict):
                raise ConfigError(f"expected an object, found {show(value)}")
            return build(value, target)

        return hook

    return make


def _tuple_hook(
    converter: Converter,
) -> Callable[[type[Any]], Callable[[object, object], object]]:
    def make(type_: type[Any]) -> Callable[[object, object], object]:
        build = homogenous_tuple_structure_factory(type_, converter)

        def hook(value: object, target: object) -> object:
            if not isinstance(value, list):
                raise ConfigError(f"expected a list, found {show(value)}")
            return build(value, target)

        return hook

    return make


# The converters compile and cache one function per class; building them is the cost.
_CONVERTERS = {edge: _build_converter(edge) for edge in Edge}
