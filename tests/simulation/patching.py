"""Switching one rule of the product off for a while."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs
import pytest


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


Change = tuple[object, str, object]
"""Where, which name, and what it is instead."""


@attrs.frozen
class Mutant:
    """One rule switched off; `changes` works out the patches when it is applied."""

    name: str
    changes: Callable[[], tuple[Change, ...]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Patch the product, and put everything back."""
        with pytest.MonkeyPatch.context() as patch:
            for target, name, value in self.changes():
                patch.setattr(target, name, value)
            yield


def changed(target: object, name: str, value: object) -> Callable[[], tuple[Change]]:
    """Return a single fixed change."""
    return lambda: ((target, name, value),)


def without_reason(
    target: object, name: str, reason: object
) -> Callable[[], tuple[Change]]:
    """Let a check that returns why not overlook one reason."""

    def changes() -> tuple[Change]:
        original: Callable[..., object] = getattr(target, name)

        def overlooking(*arguments: object) -> object:
            found = original(*arguments)
            return None if found is reason else found

        return ((target, name, overlooking),)

    return changes
