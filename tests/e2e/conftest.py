"""What several files of end-to-end tests need."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from support.namespaces import Switch, reason_against


if TYPE_CHECKING:
    from collections.abc import Iterator

NODES = ("atlas", "borea", "ceres")


@pytest.fixture
def switch() -> Iterator[Switch]:
    """A switch with a place for each node; skips where the kernel does not let us."""
    reason = reason_against()
    if reason is not None:
        pytest.skip(reason)
    with Switch(NODES) as made:
        yield made


@pytest.fixture
def watchers() -> Iterator[ThreadPoolExecutor]:
    """Threads in which commands wait."""
    with ThreadPoolExecutor() as pool:
        yield pool
