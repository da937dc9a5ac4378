"""Each story, and that the ghost would notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from simulation.stories import STORIES


if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story_holds(story: Callable[[], None]) -> None:
    story()
