"""Complaints about a configuration: each with its path, all of them at once."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import attrs

from skippyd.errors import ConfigError


if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MOST_SHOWN = 32
_LONGEST_SHOWN_VALUE = 60


@attrs.frozen
class Complaint:
    """One thing that is wrong, and the way to it from the document's root."""

    path: str
    text: str

    def below(self, parent: str) -> Complaint:
        """The same complaint seen from one level further up."""
        return Complaint(join_path(parent, self.path), self.text)

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


class InvalidConfigError(ConfigError):
    """A configuration with at least one complaint.

    Args:
        complaints: What is wrong, in the document's order where known.
        source: The file or place that the values came from, for the reader.
    """

    def __init__(self, complaints: Sequence[Complaint], source: str = "") -> None:
        self.complaints = tuple(complaints)
        self.source = source
        shown = [str(complaint) for complaint in self.complaints[:_MOST_SHOWN]]
        if len(self.complaints) > _MOST_SHOWN:
            shown.append(f"and {len(self.complaints) - _MOST_SHOWN} more")
        prefix = f"{source}: " if source else ""
        super().__init__("\n".join(prefix + line for line in shown))


def join_path(parent: str, child: str) -> str:
    """Join two path parts: `stages` and `[0].host` give `stages[0].host`."""
    if not parent or not child:
        return parent or child
    return parent + child if child.startswith("[") else f"{parent}.{child}"


def unknown_key(key: str, known: Iterable[str]) -> Complaint:
    """Complain about a key nobody reads, naming the nearest one somebody does."""
    nearest = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    return Complaint(shorten(key), f"unknown key{hint}")


def show(value: object) -> str:
    """Name a parsed value and its kind, short enough for one line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the text {shorten(value)!r}"
        case int() | float():
            return f"the number {shorten(str(value))}"
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def shorten(text: str) -> str:
    """Cut a text that came from outside to what one line can show."""
    if len(text) <= _LONGEST_SHOWN_VALUE:
        return text
    return text[: _LONGEST_SHOWN_VALUE - 1] + "…"
