from __future__ import annotations

import pytest

from skippyd.config.complaints import (
    Complaint,
    InvalidConfigError,
    join_path,
    shorten,
    show,
    unknown_key,
)
from skippyd.errors import ExitCode


def test_an_error_lists_every_complaint_with_source_and_path() -> None:
    error = InvalidConfigError(
        [Complaint("a.b", "is wrong"), Complaint("", "is no object")], "stage.json"
    )
    assert str(error) == "stage.json: a.b: is wrong\nstage.json: is no object"
    assert error.exit_code == ExitCode.BAD_CONFIGURATION


def test_an_endless_list_of_complaints_is_cut_and_says_so() -> None:
    error = InvalidConfigError([Complaint(f"k{n}", "is wrong") for n in range(1000)])
    assert len(str(error).splitlines()) == 33
    assert str(error).endswith("and 968 more")
    assert len(error.complaints) == 1000


@pytest.mark.parametrize(
    ("parent", "child", "joined"),
    [
        ("", "a", "a"),
        ("a", "", "a"),
        ("a", "b", "a.b"),
        ("a", "[0]", "a[0]"),
        ("a", "[0].b", "a[0].b"),
    ],
)
def test_paths_join_as_they_are_read(parent: str, child: str, joined: str) -> None:
    assert join_path(parent, child) == joined
    assert Complaint(child, "x").below(parent) == Complaint(joined, "x")


def test_an_unknown_key_names_the_nearest_known_one() -> None:
    known = ["layer_start", "layer_end", "lane_count"]
    assert unknown_key("layer_strat", known).text == (
        "unknown key; did you mean layer_start?"
    )
    assert unknown_key("zzz", known).text == "unknown key"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        ("x", "the text 'x'"),
        (3, "the number 3"),
        (1.5, "the number 1.5"),
        ({}, "an object"),
        ([], "a list"),
        (b"", "a bytes"),
    ],
)
def test_values_are_shown_by_kind(value: object, shown: str) -> None:
    assert show(value) == shown


def test_long_values_are_cut() -> None:
    assert shorten("x" * 1000) == "x" * 59 + "…"
    assert len(show("\n" * 1000)) < 150
