"""How many tokens one answer may have inside the context."""

from __future__ import annotations

import attrs


@attrs.frozen
class PromptTooLong:
    """The prompt leaves no room for an answer.

    Args:
        prompt_tokens: Tokens of the prompt.
        context_length: Tokens of prompt and answer together.
    """

    prompt_tokens: int
    context_length: int

    @property
    def message(self) -> str:
        """What is wrong and what to do."""
        return (
            f"the prompt has {self.prompt_tokens} tokens and the context holds "
            f"{self.context_length} for prompt and answer together; shorten the "
            "prompt or serve with a larger context"
        )


def answer_limit(
    asked_tokens: int | None, *, prompt_tokens: int, context_length: int
) -> int | PromptTooLong:
    """Tokens an answer may have: the asked ceiling, clamped to the room left.

    Args:
        asked_tokens: The client's ceiling; None is the rest of the context.
        prompt_tokens: Tokens of the prompt.
        context_length: Tokens of prompt and answer together.
    """
    room_tokens = context_length - prompt_tokens
    if room_tokens < 1:
        return PromptTooLong(prompt_tokens, context_length)
    if asked_tokens is None:
        return room_tokens
    return min(asked_tokens, room_tokens)
