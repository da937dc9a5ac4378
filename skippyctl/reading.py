"""Documents of the daemon into frozen values: strict about types, patient about keys.

A newer daemon may say more than this program knows: unknown keys are left out. What is
missing or of another type is an error with its path. (The strict converter of
`skippyd.config` takes longer to import than a command takes to run.)
"""

from __future__ import annotations

import functools
import types
import typing
from typing import TYPE_CHECKING, TypeVar, cast, get_args, get_origin

import attrs

from skippyd.errors import SkippyError


if TYPE_CHECKING:
    from collections.abc import Hashable

T = TypeVar("T")


class UnknownAnswerError(SkippyError):
    """The daemon answered with a document of another version."""


def read(document: object, type_: type[T], *, source: str) -> T:
    """Build a value of an attrs class.

    Raises:
        UnknownAnswerError: The document does not fit; the message says where.
    """
    try:
        value: T = _object(document, type_, source)
    except _MismatchError as error:
        raise UnknownAnswerError(
            f"the daemon's answer is of another version: {error}; restart skippyd "
            "after an upgrade, or use the skippyctl that came with it"
        ) from error
    return value


def written(value: object) -> dict[str, object]:
    """Write a value as the document it is."""
    document: dict[str, object] = attrs.asdict(value)  # type: ignore[arg-type] # attrs
    return document


class _MismatchError(Exception):
    """Where a document does not fit, and how."""


def _value(found: object, type_: object, path: str) -> object:
    origin = get_origin(type_)
    if origin in {types.UnionType, typing.Union}:
        inner = next(each for each in get_args(type_) if each is not types.NoneType)
        return None if found is None else _value(found, inner, path)
    if origin is tuple:
        return _tuple(found, get_args(type_)[0], path)
    if origin is dict:
        return _texts(found, path)
    if isinstance(type_, type) and attrs.has(type_):
        return _object(found, type_, path)
    return _plain(found, type_, path)


def _object(found: object, type_: type[T], path: str) -> T:
    if not isinstance(found, dict):
        raise _MismatchError(f"{path}: expected an object")
    known: dict[str, object] = {}
    for name, (inner, is_required) in _fields(cast("Hashable", type_)).items():
        if name in found:
            known[name] = _value(found[name], inner, f"{path}.{name}")
        elif is_required:
            raise _MismatchError(f"{path}.{name} is missing")
    return type_(**known)


@functools.cache
def _fields(type_: Hashable) -> dict[str, tuple[object, bool]]:
    assert isinstance(type_, type)
    hints = typing.get_type_hints(type_)
    return {
        field.name: (hints[field.name], field.default is attrs.NOTHING)
        for field in attrs.fields(type_)
    }


def _tuple(found: object, inner: object, path: str) -> tuple[object, ...]:
    if not isinstance(found, list):
        raise _MismatchError(f"{path}: expected a list")
    return tuple(_value(each, inner, f"{path}[{i}]") for i, each in enumerate(found))


def _texts(found: object, path: str) -> dict[str, str]:
    if not isinstance(found, dict):
        raise _MismatchError(f"{path}: expected an object")
    if not all(isinstance(each, str) for each in found.values()):
        raise _MismatchError(f"{path}: expected texts")
    return dict(found)


def _plain(found: object, type_: object, path: str) -> object:
    if type_ is float and type(found) is int:
        return float(found)
    if type(found) is not type_:
        expected = getattr(type_, "__name__", type_)
        raise _MismatchError(f"{path}: expected {expected}")
    return found
