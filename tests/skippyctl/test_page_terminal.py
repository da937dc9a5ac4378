from __future__ import annotations

import io

import pytest

from skippyctl.page import Page, Piece, Tone, fields, grid, line
from skippyctl.page_terminal import rich_page, terminal_console


PAGE: Page = (
    line(Piece("bad", Tone.BAD), " [bold]names[/bold] :smile:", indent=2),
    grid(("name", "note"), [("x", Piece("n " * 40))], right=("name",), wraps="note"),
    fields([("key", Piece("value", Tone.GOOD))]),
)


def shown(
    monkeypatch: pytest.MonkeyPatch, *, is_plain: bool, term: str = "xterm"
) -> str:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", term)
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = io.StringIO()
    terminal_console(stream, is_plain=is_plain).print(rich_page(PAGE, 40))
    return stream.getvalue()


def test_names_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, is_plain=True)
    assert "  bad [bold]names[/bold] :smile:" in text
    assert "key  value" in text


def test_long_notes_wrap_and_other_columns_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = shown(monkeypatch, is_plain=True)
    assert max(map(len, text.splitlines())) <= 40
    assert text.count("n n") >= 3


@pytest.mark.parametrize(
    ("is_plain", "term", "has_colours"),
    [(False, "xterm", True), (True, "xterm", False), (False, "dumb", False)],
)
def test_tones_are_styles_unless_they_are_not_wanted(
    monkeypatch: pytest.MonkeyPatch, is_plain: bool, term: str, has_colours: bool
) -> None:
    text = shown(monkeypatch, is_plain=is_plain, term=term)
    assert ("\x1b[1;31mbad" in text) is has_colours
