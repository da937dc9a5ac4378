from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.generation.text import TextAssembler


def assembled(pieces: list[bytes], stops: tuple[str, ...] = ()) -> str:
    text = TextAssembler(stops)
    return "".join(map(text.offer, pieces)) + text.finish()


def cut(data: bytes, points: list[int]) -> list[bytes]:
    edges = [0, *sorted(point % (len(data) + 1) for point in points), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def first_complete(text: str, stops: tuple[str, ...]) -> str:
    """The rule, said slowly: the first end at which some stop string is complete."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return text


def test_a_character_is_shown_when_it_is_complete() -> None:
    text = TextAssembler(())
    assert [text.offer(bytes([byte])) for byte in "é😀".encode()] == [
        *["", "é"],
        *["", "", "", "😀"],
    ]


def test_bytes_that_never_become_a_character_are_shown_as_replaced() -> None:
    assert assembled([b"a\xf0\x9f"]) == "a\ufffd"
    assert assembled([b"\xff", b"b"]) == "\ufffdb"


def test_a_stop_string_is_never_partly_shown() -> None:
    text = TextAssembler(("</s>",))
    assert [text.offer(piece) for piece in (b"Hi<", b"/", b"s", b">", b"no")] == [
        "Hi",
        *["", "", "", ""],
    ]
    assert text.is_stopped
    assert text.finish() == ""


def test_a_beginning_that_does_not_become_a_stop_string_is_shown_late() -> None:
    text = TextAssembler(("abc",))
    assert text.offer(b"xab") == "x"
    assert text.offer(b"ab") == "ab"
    assert text.finish() == "ab"
    assert not text.is_stopped


@pytest.mark.parametrize(
    ("stops", "expected"),
    [
        (("b", "abc"), "xa"),
        (("abc", "bc"), "x"),
        (("bc", "abc"), "x"),
        (("zz", "c"), "xab"),
        (("d",), "xabc"),
    ],
)
def test_the_stop_string_that_is_complete_first_ends_the_text(
    stops: tuple[str, ...], expected: str
) -> None:
    assert assembled([b"xabc"], stops) == expected
    assert assembled([bytes([byte]) for byte in b"xabc"], stops) == expected


@given(st.binary(max_size=60), st.lists(st.integers(0, 60)))
def test_any_cut_into_tokens_gives_the_same_text(
    data: bytes, points: list[int]
) -> None:
    assert assembled(cut(data, points)) == data.decode("utf-8", "replace")


@given(
    st.text("ab<é", max_size=40),
    st.lists(st.text("ab<é", min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.integers(0, 80)),
)
def test_any_cut_stops_at_the_same_place(
    text: str, stops: list[str], points: list[int]
) -> None:
    wanted = first_complete(text, tuple(stops))
    assert assembled(cut(text.encode(), points), tuple(stops)) == wanted


@given(
    st.text("ab<", max_size=40),
    st.text("ab<", min_size=1, max_size=4),
    st.lists(st.integers(0, 80)),
)
def test_what_is_shown_is_always_a_beginning_of_the_final_text(
    text: str, stop: str, points: list[int]
) -> None:
    final = first_complete(text, (stop,))
    assembler, shown = TextAssembler((stop,)), ""
    for piece in cut(text.encode(), points):
        shown += assembler.offer(piece)
        assert final.startswith(shown)
