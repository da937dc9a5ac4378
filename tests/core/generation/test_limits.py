from __future__ import annotations

import pytest

from skippyd.core.generation.limits import PromptTooLong, answer_limit


@pytest.mark.parametrize(
    ("asked", "prompt", "expected"),
    [
        (None, 10, 90),
        (5, 10, 5),
        (90, 10, 90),
        (91, 10, 90),
        (4_294_967_295, 99, 1),
    ],
)
def test_an_asked_ceiling_is_clamped_to_the_room_left(
    asked: int | None, prompt: int, expected: int
) -> None:
    assert answer_limit(asked, prompt_tokens=prompt, context_length=100) == expected


@pytest.mark.parametrize("prompt", [100, 101, 10_000])
def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(prompt: int) -> None:
    refusal = answer_limit(1, prompt_tokens=prompt, context_length=100)
    assert isinstance(refusal, PromptTooLong)
    assert str(prompt) in refusal.message
    assert "100" in refusal.message
