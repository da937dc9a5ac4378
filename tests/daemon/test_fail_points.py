"""Fail points end the process at a named place, and only when a test asked for it."""

from __future__ import annotations

import os

import pytest

from skippyd.daemon.fail_points import NAMES, STATUS_OF_KILL, VARIABLE, FailPoints
from skippyd.errors import ConfigError


def test_without_the_variable_nothing_ever_happens() -> None:
    points = FailPoints.from_environment({})

    for name in NAMES * 3:
        points.reach(name)

    assert points == FailPoints()


@pytest.mark.parametrize("written", ["after-lunch", "before-commit:0", "after-kill:x"])
def test_a_wrong_name_or_count_is_refused(written: str) -> None:
    with pytest.raises(ConfigError, match="before-commit, after-commit, after-kill"):
        FailPoints.from_environment({VARIABLE: written})


@pytest.mark.process
def test_the_process_ends_when_the_place_is_reached_so_often() -> None:
    points = FailPoints.from_environment({VARIABLE: "after-commit:2"})
    reader, writer = os.pipe()

    child = os.fork()
    if child == 0:
        for name in ("after-commit", "before-commit", "after-commit", "after-commit"):
            os.write(writer, b".")
            points.reach(name)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        reached = said.read()
    status = os.waitpid(child, 0)[1]

    assert os.waitstatus_to_exitcode(status) == STATUS_OF_KILL
    assert reached == b"..."
