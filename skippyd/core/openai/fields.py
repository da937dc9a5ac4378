"""Reading one field of a request: present, of the right type, within its range."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from skippyd.core.openai.errors import ApiRefusedError, invalid_value


if TYPE_CHECKING:
    from collections.abc import Mapping


_SHOWN_CHARACTERS = 64


def refuse(message: str, param: str) -> ApiRefusedError:
    """An invalid value of a field, ready to be raised."""
    return ApiRefusedError(invalid_value(message, param))


def shown(value: object) -> str:
    """A value as it may stand in a message: short, on one line."""
    text = repr(value)
    if len(text) > _SHOWN_CHARACTERS:
        return text[:_SHOWN_CHARACTERS] + "…"
    return text


@attrs.frozen
class FieldReader:
    """The fields of one JSON object; null is the same as absent.

    Args:
        values: The object.
        path: Where it stands in the body, such as `messages[2].`; empty at the top.
    """

    values: Mapping[str, object]
    path: str = ""

    def value(self, name: str) -> object:
        """The raw value; None when absent."""
        return self.values.get(name)

    def text(self, name: str) -> str | None:
        """A string that is valid Unicode."""
        value = self.value(name)
        if value is None:
            return None
        return as_text(value, self.path + name)

    def flag(self, name: str) -> bool:
        """A boolean; absent is false."""
        value = self.value(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise refuse(
                f"{self.path}{name} must be true or false, not {shown(value)}",
                self.path + name,
            )
        return value

    def integer(self, name: str, lowest: int, highest: int) -> int | None:
        """A whole number in [lowest, highest]."""
        value = self.value(name)
        if value is None:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not lowest <= value <= highest
        ):
            raise refuse(
                f"{self.path}{name} must be a whole number from {lowest} to {highest},"
                f" not {shown(value)}",
                self.path + name,
            )
        return value

    def number(self, name: str, lowest: float, highest: float) -> float | None:
        """A finite number in [lowest, highest]."""
        value = self.value(name)
        if value is None:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not lowest <= value <= highest
            or not math.isfinite(value)
        ):
            raise refuse(
                f"{self.path}{name} must be a number from {lowest:g} to {highest:g},"
                f" not {shown(value)}",
                self.path + name,
            )
        return float(value)


def as_text(value: object, where: str) -> str:
    """Check that a value is a string without lone surrogates."""
    if not isinstance(value, str):
        raise refuse(f"{where} must be a string, not {shown(value)}", where)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise refuse(
            f"{where} is not valid Unicode: lone surrogate at character {error.start}",
            where,
        ) from None
    return value
