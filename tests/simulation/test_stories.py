"""Each story holds; one that does not is told with the promise it breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from simulation.expectations import expect
from simulation.ghost import InvariantBrokenError
from simulation.stories import STORIES


if TYPE_CHECKING:
    from collections.abc import Callable


def broken_by(story: Callable[[], None]) -> str | None:
    """The promise that a story finds broken."""
    try:
        story()
    except InvariantBrokenError as broken:
        return str(broken)
    return None


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story_holds(story: Callable[[], None]) -> None:
    assert broken_by(story) is None


def test_a_story_that_does_not_hold_is_told() -> None:
    told = broken_by(lambda: expect(False, "the sun rises twice"))
    assert told is not None
    assert "the sun rises twice" in told
