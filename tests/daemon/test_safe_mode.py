from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyd.daemon.safe_mode import VARIABLE, SafeModeSwitch, now_unix_s, read_request
from skippyd.errors import ConfigError, UsageError


if TYPE_CHECKING:
    from pathlib import Path

MOMENT_UNIX_S = 1_764_468_000.9
"""2025-11-30T02:00:00Z."""


def _switch(path: Path, word: str | None = None) -> SafeModeSwitch:
    environment = {} if word is None else {VARIABLE: word}
    return SafeModeSwitch.at_start(path / "safe-mode.toml", environment)


def test_a_request_takes_effect_at_the_next_start(tmp_path: Path) -> None:
    switch = _switch(tmp_path)
    assert (switch.is_requested, switch.is_effective) == (False, False)
    reason = 'wrong answers "since" the \\ upgrade é \U0001f642'
    switch.turn_on(reason, by_uid=1000, now_unix_s=MOMENT_UNIX_S)
    assert (switch.is_requested, switch.is_effective) == (True, False)

    again = _switch(tmp_path)
    assert (again.is_requested, again.is_effective) == (True, True)
    assert again.request is not None
    assert again.request.reason == reason
    assert again.request.since == "2025-11-30T02:00:00Z"
    assert again.request.by_uid == 1000
    assert again.origin == "file"

    again.turn_off()
    assert (again.is_requested, again.is_effective) == (False, True)
    assert not _switch(tmp_path).is_effective


def test_the_environment_asks_for_it_too(tmp_path: Path) -> None:
    switch = _switch(tmp_path, "1")
    assert switch.is_effective
    assert switch.origin == "environment"
    assert VARIABLE in switch.reason
    switch.turn_on("both", by_uid=0, now_unix_s=now_unix_s())
    assert switch.origin == "file, environment"
    assert not _switch(tmp_path / "other", "0").is_effective


@pytest.mark.parametrize("word", ["2", "maybe"])
def test_a_word_that_is_neither_refuses_to_start(tmp_path: Path, word: str) -> None:
    with pytest.raises(ConfigError, match=VARIABLE):
        _switch(tmp_path, word)


@pytest.mark.parametrize("reason", ["", "two\nlines", "x" * 501])
def test_a_reason_is_one_printable_line(tmp_path: Path, reason: str) -> None:
    switch = _switch(tmp_path)
    with pytest.raises(UsageError, match="1 to 500"):
        switch.turn_on(reason, by_uid=0, now_unix_s=MOMENT_UNIX_S)
    assert not switch.is_requested


def test_a_file_that_is_not_understood_refuses_to_start(tmp_path: Path) -> None:
    path = tmp_path / "safe-mode.toml"
    path.write_text('schema = "skippy.other/1"\nreason="r"\nsince="s"\nby_uid=0\n')
    with pytest.raises(ConfigError, match=r"skippy\.other/1"):
        read_request(path)
    path.write_text("reason = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_request(path)


def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    switch = _switch(tmp_path / "gone")
    with pytest.raises(ConfigError, match="nothing has changed"):
        switch.turn_on("reason", by_uid=0, now_unix_s=MOMENT_UNIX_S)
    assert not switch.is_requested
