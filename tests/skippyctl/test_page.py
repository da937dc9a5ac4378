from __future__ import annotations

from skippyctl.page import (
    Piece,
    Tone,
    cell_width,
    fields,
    fitted,
    grid,
    line,
    paragraph,
    plain_text,
)


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    page = (
        line("a ", Piece("title", Tone.STRONG)),
        grid(("name", "size"), [("x", "1"), ("longer", "1000")], right=("size",)),
        line(),
        fields([("key", "value"), ("longer key", Piece("v", Tone.BAD))]),
        line("end", indent=2),
    )
    assert plain_text(page).split("\n") == [
        "a title",
        "name    size",
        "x          1",
        "longer  1000",
        "",
        "key         value",
        "longer key  v",
        "  end",
    ]


def test_wide_characters_take_two_columns() -> None:
    assert cell_width("模型e\u0301") == 5
    page = (grid(("a", "b"), [("模型", "1"), ("abcd", "2")]),)
    assert plain_text(page).split("\n") == ["a     b", "模型  1", "abcd  2"]


def test_empty_grids_take_no_line() -> None:
    assert plain_text((fields([]),)) == ""
    assert plain_text((grid(("a", "b"), []),)) == "a  b"


def test_foreign_texts_stay_on_their_line_and_are_harmless() -> None:
    assert plain_text((line("a\nb\x1b[0m"),)) == r"a b\x1b[0m"
    lines = paragraph("one\n  two  \n", indent=1)
    assert plain_text(tuple(lines)) == " one\n   two"


def test_a_narrow_terminal_does_without_the_least_useful_columns() -> None:
    block = grid(
        ("name", "pid", "address"),
        [("alpha", "4000", "10.0.0.1:19000")],
        right=("pid",),
        drops=("pid", "address"),
    )
    assert fitted(block, 27) is block
    assert fitted(block, 26).head == ("name", "address")
    assert fitted(block, 20).head == ("name",)
    assert plain_text((fitted(block, 3),)).split("\n") == ["name", "alpha"]
    assert plain_text((block,)).split("\n")[1] == "alpha  4000  10.0.0.1:19000"


def test_a_pipe_does_without_columns_only_when_a_width_is_given() -> None:
    block = grid(("name", "hash"), [("alpha", "d4" * 32)], drops=("hash",))
    page = (line("x" * 200), block)
    assert plain_text(page).endswith("d4" * 32)
    assert plain_text(page, 70).endswith("name\nalpha")
    assert plain_text(page, 71).endswith("d4" * 32)
    assert plain_text(page, 70).startswith("x" * 200), "a line is never cut off"
