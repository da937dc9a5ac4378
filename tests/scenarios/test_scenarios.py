"""Replays the story files beside it; SKIPPY_REWRITE_STORIES=1 writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.stories import check_story


STORIES = sorted(Path(__file__).parent.glob("*.txt"))
SCENARIO_COUNT = 10


def test_every_scenario_of_the_coordinator_has_its_story() -> None:
    numbers = {path.name.split("-")[0] for path in STORIES}

    assert {f"{number:02}" for number in range(1, SCENARIO_COUNT + 1)} <= numbers


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_still_ends_as_written(path: Path) -> None:
    rewrite = os.environ.get("SKIPPY_REWRITE_STORIES") == "1"

    expected, real = check_story(path, rewrite=rewrite)

    assert real == expected
