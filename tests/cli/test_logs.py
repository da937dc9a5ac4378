"""Log lines: one event a line, UTC time with milliseconds, level, where."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from skippyd.cli.logs import log_to_stderr


if TYPE_CHECKING:
    import pytest


def test_a_line_has_time_level_place_and_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_to_stderr("warning")
    logger = logging.getLogger("skippyd.test")
    logger.info("not shown")
    logger.warning("lane %d is full", 3)
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING skippyd\.test "
        r"lane 3 is full\n",
        said.err,
    )
