"""The words of a status that come from what stages said."""

from __future__ import annotations

import pytest

from skippyd.daemon.status_view import in_one_line, stage_reasons
from skippyd.stage.child_process import LogTail, describe_end
from support.admin_documents import stage


RESTART = "restart 1 of 5 in 1 s if its claim still holds"


def _end(*said: str) -> str:
    tail = LogTail()
    tail.feed("".join(f"{line}\n" for line in said).encode())
    return describe_end("stage-1 (pid 7)", -6, tail)


def test_the_cause_is_what_a_dead_process_is_told_by() -> None:
    died = _end("ready", "ggml.c:7: GGML_ASSERT(n > 0) failed", "bye")
    assert in_one_line(f"{died}\n{RESTART}") == (
        "stage-1 (pid 7) was ended by SIGABRT; it said: "
        f"ggml.c:7: GGML_ASSERT(n > 0) failed; {RESTART}"
    )


def test_without_a_cause_the_last_words_are_told() -> None:
    assert in_one_line(_end("ready", "computing", "last words")).endswith(
        "it said: last words"
    )
    assert in_one_line(_end()) == "stage-1 (pid 7) was ended by SIGABRT"


@pytest.mark.parametrize("reason", ["", "its node is not available"])
def test_a_reason_of_one_line_stays(reason: str) -> None:
    assert in_one_line(reason) == reason


def test_what_ended_is_told_before_what_misses_it() -> None:
    lost = "degraded: stage-1 is not there"
    stages = (
        stage(0, health=lost),
        stage(1, state="FAILED", reason=_end("ready", "last words")),
        stage(2, state="STARTING", health=""),
    )
    assert list(stage_reasons(stages)) == [
        (
            "stage-1 on beta is FAILED: stage-1 (pid 7) was ended by SIGABRT; it said: "
            "last words"
        ),
        f"stage-0 on alpha is {lost}",
    ]
    assert list(stage_reasons([stage(0, health="ok"), stage(1)])) == []
