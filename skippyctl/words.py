"""Figures and foreign texts in words: short, and harmless on a terminal."""

from __future__ import annotations

import datetime as dt
import unicodedata


SHORT_ID = 12
LONGEST_LINE = 4096

_MS_PER_S = 1000
_DIVISIONS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (bidirectional overrides), half pairs, private, line separators."""


def clean(text: str) -> str:
    """Make a text that came from elsewhere harmless: it steers no terminal.

    Line ends and tabs stay, for they only move text; the rest is written as an escape.
    """
    return "".join(map(_harmless, text))


def clean_line(text: str) -> str:
    """As `clean`, on one line of bounded length."""
    line = clean(" ".join(text.split()) if "\n" in text or "\t" in text else text)
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def duration(ms: int) -> str:
    """A time for people: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 14 min`, `3 d 4 h`."""
    if ms < _MS_PER_S:
        return f"{max(0, ms) / _MS_PER_S:.1f} s"
    left = ms // _MS_PER_S
    parts: list[str] = []
    for name, seconds in _DIVISIONS:
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


def microseconds(us: int | None) -> str:
    """A measured time: `0.25 ms`, `12.3 ms`, `1.20 s`; `-` when there is none."""
    if us is None:
        return "-"
    if us >= 1_000_000:  # noqa: PLR2004 - microseconds of a second
        return f"{us / 1_000_000:.2f} s"
    digits = 1 if us >= 10_000 else 2  # noqa: PLR2004 - 10 ms
    return f"{us / 1000:.{digits}f} ms"


def moment(unix_ms: int) -> str:
    """A moment in RFC 3339, UTC, to the second; what is no date stays a number."""
    try:
        when = dt.datetime.fromtimestamp(unix_ms // _MS_PER_S, tz=dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{unix_ms} ms"
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_time(unix_ms: int) -> str:
    """The time of day of a moment, UTC."""
    return moment(unix_ms)[11:19]


def short_id(identity: str) -> str:
    """Enough of a node id to tell nodes apart."""
    return identity[:SHORT_ID]


def percent(done: int, total: int) -> int:
    """Whole percent, 100 only when all is done."""
    return 100 if total <= 0 else min(100, max(0, done) * 100 // total)


def _harmless(character: str) -> str:
    if character in "\n\t":
        return character
    if unicodedata.category(character) not in _UNSAFE:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
