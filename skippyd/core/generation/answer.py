"""When an answer ends, and why: end token, stop string or limit."""

from __future__ import annotations

from typing import Literal

import attrs

from skippyd.core.generation.text import TextAssembler


FinishReason = Literal["stop", "length"]


@attrs.define
class Answer:
    """The answer so far.

    Feed tokens in order until `finish_reason` is set; later ones are not looked
    at.  Text held back at the end comes with the token that ended the answer.

    Args:
        max_tokens: The answer ends with "length" after this many tokens.
        stops: Stop strings; the text ends before the one that is complete first.
    """

    max_tokens: int
    stops: tuple[str, ...]
    completion_tokens: int = attrs.field(default=0, init=False)
    finish_reason: FinishReason | None = attrs.field(default=None, init=False)
    _text: TextAssembler = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._text = TextAssembler(self.stops)

    def offer_token(self, piece: bytes) -> str:
        """Take an ordinary token's bytes; return the text to show now."""
        if self.finish_reason is not None:
            return ""
        self.completion_tokens += 1
        shown = self._text.offer(piece)
        if self._text.is_stopped:
            self.finish_reason = "stop"
        elif self.completion_tokens >= self.max_tokens:
            shown += self.end("length")
        return shown

    def offer_end_token(self) -> str:
        """Take an end token: it counts as generated and has no text."""
        if self.finish_reason is not None:
            return ""
        self.completion_tokens += 1
        return self.end("stop")

    def end(self, reason: FinishReason) -> str:
        """End the answer for `reason`; return the text that was held back.

        A stop string completed by the very last bytes still makes it "stop".
        """
        if self.finish_reason is not None:
            return ""
        shown = self._text.finish()
        self.finish_reason = "stop" if self._text.is_stopped else reason
        return shown
