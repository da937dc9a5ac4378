from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest

from skippyctl.planning import Outcome, Refused
from skippyctl.show import show_plan, wants_colours, write_map
from skippyd.errors import UsageError


if TYPE_CHECKING:
    from pathlib import Path


OUTCOME = Outcome(model_name="m", refused=Refused(name="NotOffered", message="no"))


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "color", "environment", "expected"),
    [
        (True, "auto", {"TERM": "xterm"}, True),
        (True, "auto", {}, True),
        (False, "auto", {"TERM": "xterm"}, False),
        (True, "auto", {"TERM": "dumb"}, False),
        (True, "auto", {"NO_COLOR": "1"}, False),
        (True, "auto", {"NO_COLOR": ""}, True),
        (False, "auto", {"FORCE_COLOR": "1"}, True),
        (False, "auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (False, "always", {"NO_COLOR": "1"}, True),
        (True, "never", {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_follow_flag_then_environment_then_terminal(
    terminal: bool,
    color: str,
    environment: dict[str, str],
    expected: bool,
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    assert wants_colours(stream, color, environment) is expected


def printed(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, color: str) -> str:
    monkeypatch.setattr(sys, "stdout", stream)
    show_plan(OUTCOME, explain=False, as_json=False, color=color)
    return stream.getvalue()


def test_a_terminal_without_colours_still_gets_the_picture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert "\x1b[1;31mRefused" in printed(monkeypatch, Terminal(), "auto")
    without = printed(monkeypatch, Terminal(), "never")
    assert "Refused (NotOffered): no" in without
    assert "\x1b" not in without


def test_a_dumb_terminal_and_a_pipe_get_plain_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    plain = "m\nrefused (NotOffered): no\n"
    assert printed(monkeypatch, io.StringIO(), "auto") == plain
    monkeypatch.setenv("TERM", "dumb")
    assert printed(monkeypatch, Terminal(), "auto") == plain


def test_json_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_plan(OUTCOME, explain=True, as_json=True, color="always")
    assert capsys.readouterr().out.count("\n") == 1


def test_a_map_is_written_or_refused(tmp_path: Path) -> None:
    write_map(OUTCOME, tmp_path / "map.svg")
    assert (tmp_path / "map.svg").read_text(encoding="utf-8").startswith("<svg")

    with pytest.raises(UsageError, match="cannot be written: Is a directory"):
        write_map(OUTCOME, tmp_path)
