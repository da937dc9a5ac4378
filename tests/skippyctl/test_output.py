from __future__ import annotations

import argparse
import io
import json

import pytest

from skippyctl.output import (
    json_line,
    plain_width,
    show,
    show_each,
    wants_colours,
    wants_terminal,
)
from skippyctl.page import Page, line
from skippyd.admin.schema import Done, Event
from support.admin_documents import event


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def arguments(*, as_json: bool = False, color: str = "auto") -> argparse.Namespace:
    return argparse.Namespace(json=as_json, color=color)


def page_of(done: Done) -> Page:
    return (line(done.message),)


def test_json_is_one_line_of_ascii() -> None:
    text = json_line(Done(message="Grüße\n\x1b[2J"))
    assert text.isascii()
    assert len(text.splitlines()) == 1
    assert json.loads(text) == {"schema": "skippy.done/1", "message": "Grüße\n\x1b[2J"}


def test_events_leave_out_what_they_have_no_value_for() -> None:
    written = json.loads(json_line(event(1, "plan", "3 stages")))
    assert written.keys() == {
        "schema", "sequence", "unix_ms", "event", "message", "model_id", "is_final", "is_dry_run",
    }  # fmt: skip
    assert isinstance(event(1, "plan", ""), Event)


def test_a_document_is_shown_as_json_or_as_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = Done(message="done")
    show(done, page_of(done), arguments(as_json=True))
    show(done, page_of(done), arguments())
    assert capsys.readouterr().out == json_line(done) + "\ndone\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_what_goes_on_is_written_one_after_another_into_a_pipe(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    each = [Done(message="1"), Done(message="2")]
    show_each(each, page_of, arguments(as_json=as_json))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ([json_line(d) for d in each] if as_json else ["1", "2"])


def test_what_goes_on_is_shown_in_place_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    show_each([Done(message="one"), Done(message="two")], page_of, arguments())
    text = stream.getvalue()
    assert "one" in text
    assert "two" in text
    assert "\x1b[2K" in text  # the first is wiped out


@pytest.mark.parametrize(
    ("variables", "color", "colours", "layout"),
    [
        ({"TERM": "xterm"}, "auto", True, True),
        ({"TERM": "dumb"}, "auto", False, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "auto", False, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, "auto", True, True),
        ({"TERM": "xterm"}, "never", False, True),
    ],
)
def test_a_terminal_gets_colours_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    color: str,
    colours: bool,
    layout: bool,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert wants_colours(Terminal(), color) is colours
    assert wants_terminal(Terminal(), color) is layout


def test_a_pipe_gets_colours_only_when_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert not wants_colours(io.StringIO(), "auto")
    assert wants_colours(io.StringIO(), "always")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert wants_colours(io.StringIO(), "auto")


@pytest.mark.parametrize(
    ("columns", "width"), [("60", 60), ("", 120), ("0", 120), ("wide", 120)]
)
def test_a_pipe_is_as_wide_as_people_read(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert plain_width(io.StringIO()) == width
