from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyctl.words import (
    clean,
    clean_line,
    clock_time,
    duration,
    microseconds,
    moment,
    percent,
    short_id,
)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0.0 s"),
        (0, "0.0 s"),
        (940, "0.9 s"),
        (1_000, "1 s"),
        (59_999, "59 s"),
        (200_000, "3 min 20 s"),
        (3_600_000, "1 h"),
        (3_605_000, "1 h"),
        (8_040_000, "2 h 14 min"),
        (270_000_000, "3 d 3 h"),
        (259_260_000, "3 d"),
    ],
)
def test_times_have_two_units_at_most(ms: int, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "-"),
        (0, "0.00 ms"),
        (230, "0.23 ms"),
        (9_870, "9.87 ms"),
        (12_340, "12.3 ms"),
        (1_500_000, "1.50 s"),
    ],
)
def test_measured_times_keep_three_digits(us: int | None, text: str) -> None:
    assert microseconds(us) == text


def test_moments_are_rfc_3339_in_utc() -> None:
    assert moment(1_764_468_000_999) == "2025-11-30T02:00:00Z"
    assert clock_time(1_764_468_000_999) == "02:00:00"
    assert moment(2**63) == f"{2**63} ms"


@pytest.mark.parametrize(
    ("done", "total", "share"),
    [(0, 10, 0), (999, 1000, 99), (10, 10, 100), (5, 0, 100)],
)
def test_only_all_of_it_is_a_hundred_percent(done: int, total: int, share: int) -> None:
    assert percent(done, total) == share


@pytest.mark.parametrize(
    ("evil", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\rb", r"a\rb"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\ud800", r"\ud800"),
        ("two\nlines\t.", "two\nlines\t."),
        ("Grüße 模型 █·", "Grüße 模型 █·"),
    ],
)
def test_foreign_texts_steer_no_terminal(evil: str, shown: str) -> None:
    assert clean(evil) == shown


@given(st.text())
def test_a_clean_line_is_one_printable_line(text: str) -> None:
    line = clean_line(text)
    assert all(each.isprintable() or each.isspace() for each in line)
    assert len(line.splitlines()) <= 1
    assert len(line.encode()) >= len(line)


def test_a_line_has_a_bound() -> None:
    assert len(clean_line("x" * 100_000)) == 4096


def test_an_id_is_shown_by_its_beginning() -> None:
    assert short_id("a1" * 32) == "a1a1a1a1a1a1"
