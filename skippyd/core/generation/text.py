"""Token bytes to text that is safe to show.

Theory of operation.  Bytes come in token by token.  `TextAssembler` decodes
them as UTF-8, keeping an incomplete character back, and then keeps back the
longest tail that could still become a stop string.  So a stop string is never
partly shown, and how the bytes were cut into tokens never changes the text.

The stop string that is *complete* first ends the text (among those that end at
the same character: the one that begins first).  This rule needs no look ahead,
so it is the same for every cut into tokens.
"""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from codecs import IncrementalDecoder


def _new_decoder() -> IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


@attrs.define
class TextAssembler:
    """Text of one answer.

    Call `offer` for each token and `finish` once at the end; after `is_stopped`
    nothing more comes out.

    Args:
        stops: Non-empty stop strings.
    """

    stops: tuple[str, ...]
    is_stopped: bool = attrs.field(default=False, init=False)
    _decoder: IncrementalDecoder = attrs.field(factory=_new_decoder, init=False)
    _held: str = attrs.field(default="", init=False)

    def offer(self, data: bytes) -> str:
        """Take a token's bytes; return the text that can be shown now."""
        if self.is_stopped:
            return ""
        return self._advance(self._decoder.decode(data))

    def finish(self) -> str:
        """Return what was held back: it did not become a stop string after all.

        Bytes of a character that never became complete are shown as U+FFFD.
        """
        if self.is_stopped:
            return ""
        shown = self._advance(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return shown + held

    def _advance(self, text: str) -> str:
        if not self.stops:
            return text
        pending = self._held + text
        cut = _first_stop(pending, self.stops)
        if cut is not None:
            self.is_stopped, self._held = True, ""
            return pending[:cut]
        safe = len(pending) - _held_length(pending, self.stops)
        self._held = pending[safe:]
        return pending[:safe]


def _first_stop(text: str, stops: tuple[str, ...]) -> int | None:
    """Start of the stop string that is complete first."""
    matches = [
        (start + len(stop), start) for stop in stops if (start := text.find(stop)) >= 0
    ]
    return min(matches)[1] if matches else None


def _held_length(text: str, stops: tuple[str, ...]) -> int:
    """Length of the longest tail that a stop string could begin with."""
    return max(_tail_length(text, stop) for stop in stops)


def _tail_length(text: str, stop: str) -> int:
    start = max(0, len(text) - len(stop) + 1)
    while (start := text.find(stop[0], start)) >= 0:
        if stop.startswith(text[start:]):
            return len(text) - start
        start += 1
    return 0
