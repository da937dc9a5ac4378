"""Which parts of a rendered chat prompt may contain control tokens.

A user may write `<|im_end|>` in a message; it has to stay text.  Before the
template runs, `mark_controls` puts a *mark* (a Unicode noncharacter that occurs
nowhere else) inside each control text of a message, and inside a beginning of
one at a message's end or the rest of one at its start, so that template and
message cannot form one together.  After rendering, `prompt_spans` takes the
marks out: a control text across a mark is text, every other one came from the
template and is a token.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


# Unicode's noncharacters U+FDD0..U+FDEF: no text that means something has them.
_MARKS = tuple(chr(point) for point in range(0xFDD0, 0xFDF0))
_BEGINNING = 3
# Beginnings and ends of control texts are looked for at a message's edges up to
# this many characters; no known control text is longer.
_LONGEST_EDGE = 64


@attrs.frozen
class PromptSpan:
    """A piece of a prompt.

    Args:
        text: Never empty.
        has_controls: Whether control texts in it are tokens (the template's) or
            ordinary text (a user's).
    """

    text: str
    has_controls: bool


def choose_mark(texts: Iterable[str]) -> str | None:
    """A noncharacter that is in none of the texts; None when all are used."""
    free = dict.fromkeys(_MARKS)
    for text in texts:
        for mark in [mark for mark in free if mark in text]:
            del free[mark]
    return next(iter(free), None)


@attrs.frozen
class ControlTexts:
    """The texts of a model's control tokens, ready for searching.

    A text starts only where one of a few short beginnings stands; there a set is
    asked for each length.  One pattern with every text would take microseconds a
    character on vocabularies with hundreds of control tokens.
    """

    texts: frozenset[str]
    _beginnings: re.Pattern[str] | None
    _lengths: Mapping[str, tuple[int, ...]] = attrs.field(kw_only=True)
    _heads: frozenset[str] = attrs.field(kw_only=True)
    _tails: frozenset[str] = attrs.field(kw_only=True)

    @classmethod
    def of(cls, texts: Iterable[str]) -> ControlTexts:
        """Prepare the texts; empty ones are left out."""
        known = frozenset(text for text in texts if text)
        # The longer beginning first: it knows the texts of the shorter one too.
        starts = sorted({text[:_BEGINNING] for text in known}, reverse=True)
        return cls(
            known,
            re.compile("|".join(map(re.escape, starts))) if starts else None,
            lengths={start: _lengths_at(start, known) for start in starts},
            heads=frozenset(head for text in known for head in _heads(text)),
            tails=frozenset(
                head[::-1] for text in known for head in _heads(text[::-1])
            ),
        )

    def mark_controls(self, text: str, mark: str) -> str:
        """Put marks into a message so that no control token can come out of it."""
        points = {start + 1 for start, _ in self._occurrences(text, overlapping=True)}
        for length in range(1, min(_LONGEST_EDGE, len(text)) + 1):
            if text[-length:] in self._heads:
                points.add(len(text) - length + 1)
            if text[:length] in self._tails:
                points.add(length - 1)
        return _with_marks(text, sorted(points), mark)

    def prompt_spans(self, rendered: str, mark: str) -> tuple[PromptSpan, ...]:
        """Cut a rendered prompt; the spans joined are the prompt without marks.

        A span without controls always lies between control tokens (or the ends),
        so that tokenising it alone gives what tokenising the whole would.
        """
        if mark not in rendered:
            return _merged([PromptSpan(rendered, has_controls=True)])
        return _merged(self._runs(rendered.split(mark)))

    def _runs(self, segments: list[str]) -> list[PromptSpan]:
        spans: list[PromptSpan] = []
        run = ""
        for segment in segments:
            done = 0
            for start, end in self._occurrences(segment, overlapping=False):
                spans.append(self._text_span(run + segment[done:start]))
                spans.append(PromptSpan(segment[start:end], has_controls=True))
                run, done = "", end
            run += segment[done:]
        spans.append(self._text_span(run))
        return spans

    def _text_span(self, run: str) -> PromptSpan:
        # Text without any control text reads the same either way.
        is_forged = any(True for _ in self._occurrences(run, overlapping=False))
        return PromptSpan(run, has_controls=not is_forged)

    def _occurrences(
        self, text: str, *, overlapping: bool
    ) -> Iterator[tuple[int, int]]:
        if self._beginnings is None:
            return
        position = 0
        while (match := self._beginnings.search(text, position)) is not None:
            start = match.start()
            end = self._end_at(text, start, match.group())
            if end is not None:
                yield start, end
            position = start + 1 if end is None or overlapping else end

    def _end_at(self, text: str, start: int, beginning: str) -> int | None:
        for length in self._lengths[beginning]:
            if text[start : start + length] in self.texts:
                return start + length
        return None


def _lengths_at(start: str, texts: frozenset[str]) -> tuple[int, ...]:
    """Lengths of the texts that may stand where `start` does.

    Longest first: `<|end|>` must not hide `<|end|>x`.
    """
    lengths = {
        len(text) for text in texts if text.startswith(start) or start.startswith(text)
    }
    return tuple(sorted(lengths, reverse=True))


def _heads(text: str) -> Iterator[str]:
    """Proper beginnings of a text."""
    return (text[:length] for length in range(1, min(len(text) - 1, _LONGEST_EDGE) + 1))


def _with_marks(text: str, points: list[int], mark: str) -> str:
    pieces = [
        text[start:end]
        for start, end in zip([0, *points], [*points, len(text)], strict=True)
    ]
    return mark.join(pieces)


def _merged(spans: list[PromptSpan]) -> tuple[PromptSpan, ...]:
    merged: list[PromptSpan] = []
    for span in spans:
        if not span.text:
            continue
        if merged and merged[-1].has_controls == span.has_controls:
            span = PromptSpan(merged.pop().text + span.text, span.has_controls)  # noqa: PLW2901
        merged.append(span)
    return tuple(merged)
