from __future__ import annotations

import pytest

from skippyd import errors
from skippyd.errors import ExitCode, FailureCode, SkippyError, StageFailureError


def test_exit_codes_are_the_published_ones() -> None:
    """Contract, "Everywhere"."""
    assert {code.name: code.value for code in ExitCode} == {
        "DONE": 0,
        "FAILED": 1,
        "USAGE": 2,
        "DEGRADED": 3,
        "UNREACHABLE": 4,
        "PERMISSION": 5,
        "REFUSED": 6,
        "STALE_TERM": 7,
        "INTERNAL": 70,
        "FENCE_STORE": 71,
        "TRY_AGAIN": 75,
        "BAD_CONFIGURATION": 78,
        "INTERRUPTED": 130,
    }


def test_failure_codes_on_the_wire_are_the_published_ones() -> None:
    """Contract, "Wire": reply kind 127."""
    assert {code.name: code.value for code in FailureCode} == {
        "PROTOCOL": 1,
        "KIND_NOT_SERVED": 2,
        "KV_FULL": 3,
        "BAD_BATCH": 4,
        "STAGE_LOST": 5,
        "FENCED": 6,
        "CANCELLED": 7,
        "TIMEOUT": 8,
        "SAMPLING": 9,
        "INTERNAL": 10,
    }


@pytest.mark.parametrize(
    "kind",
    [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, SkippyError)
    ],
)
def test_every_error_of_ours_ends_a_command_with_a_known_code(
    kind: type[SkippyError],
) -> None:
    assert kind.exit_code in set(ExitCode) - {ExitCode.DONE}


def test_a_stage_failure_carries_what_travels() -> None:
    failure = StageFailureError(FailureCode.TIMEOUT, 2, "stage 2 gave no answer")
    assert (failure.code, failure.stage_index) == (FailureCode.TIMEOUT, 2)
    assert str(failure) == failure.message == "stage 2 gave no answer"
