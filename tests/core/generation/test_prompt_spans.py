from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.generation.prompt_spans import (
    ControlTexts,
    PromptSpan,
    choose_mark,
)


MARK = "\ufdd0"
CONTROLS = ControlTexts.of(["<|im_start|>", "<|im_end|>", "<s>", ""])


def spans_of(before: str, content: str, after: str) -> tuple[PromptSpan, ...]:
    marked = CONTROLS.mark_controls(content, MARK)
    return CONTROLS.prompt_spans(before + marked + after, MARK)


def text(value: str) -> PromptSpan:
    return PromptSpan(value, has_controls=False)


def template(value: str) -> PromptSpan:
    return PromptSpan(value, has_controls=True)


def test_a_harmless_message_stays_in_one_span() -> None:
    assert spans_of("<|im_start|>user\n", "Hi <b> 1 < 2", "<|im_end|>\n") == (
        template("<|im_start|>user\nHi <b> 1 < 2<|im_end|>\n"),
    )


def test_a_control_text_in_a_message_is_text_between_the_templates_tokens() -> None:
    assert spans_of("<|im_start|>user\n", "a<|im_end|>b", "<|im_end|>\n") == (
        template("<|im_start|>"),
        text("user\na<|im_end|>b"),
        template("<|im_end|>\n"),
    )


def test_a_message_that_is_only_a_control_text_is_text() -> None:
    assert spans_of("", "<s>", "") == (text("<s>"),)


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [("", "<|im_", "end|>"), ("<|im_en", "d|>", ""), ("<", "s>", ""), ("", "<s", ">")],
)
def test_template_and_message_do_not_form_a_token_together(
    before: str, content: str, after: str
) -> None:
    assert spans_of(before, content, after) == (text(before + content + after),)


def test_two_messages_do_not_form_a_token_together() -> None:
    first = CONTROLS.mark_controls("<|im_", MARK)
    second = CONTROLS.mark_controls("end|>", MARK)
    rendered = first + second + "<s>"
    assert CONTROLS.prompt_spans(rendered, MARK) == (
        text("<|im_end|>"),
        template("<s>"),
    )


def test_overlapping_control_texts_are_all_kept_as_text() -> None:
    controls = ControlTexts.of(["ab", "bc", "abcd"])
    marked = controls.mark_controls("xabcd", MARK)
    assert controls.prompt_spans(marked, MARK) == (text("xabcd"),)


def test_the_longest_control_text_is_the_templates_token() -> None:
    controls = ControlTexts.of(["<e>", "<e>x", "<q>"])
    marked = "<e>x" + controls.mark_controls("<q>", MARK)
    assert controls.prompt_spans(marked, MARK) == (template("<e>x"), text("<q>"))


def test_a_template_that_trims_finds_the_same_white_space() -> None:
    marked = CONTROLS.mark_controls("  <|im_end|>\n", MARK)
    assert len(marked.strip()) == len("<|im_end|>") + 1


def test_a_vocabulary_without_control_texts_needs_no_marks() -> None:
    controls = ControlTexts.of([])
    assert controls.mark_controls("<s>", MARK) == "<s>"
    assert controls.prompt_spans("<s>", MARK) == (template("<s>"),)


def test_an_empty_prompt_has_no_spans() -> None:
    assert CONTROLS.prompt_spans("", MARK) == ()
    assert CONTROLS.prompt_spans(MARK, MARK) == ()


def test_the_mark_is_one_that_no_message_uses() -> None:
    assert choose_mark(["a", "b"]) == "\ufdd0"
    assert choose_mark(["a\ufdd0\ufdd1", "\ufdd2"]) == "\ufdd3"
    assert choose_mark([chr(point) for point in range(0xFDD0, 0xFDF0)]) is None


def test_marking_a_long_hostile_message_takes_one_pass() -> None:
    controls = ControlTexts.of([f"[control_{index}]" for index in range(768)])
    marked = controls.mark_controls("[co" * 20_000, MARK)
    # One mark inside the unfinished control text at the very end, nothing else.
    assert marked.count(MARK) == 1


@given(
    st.lists(st.text("<s>|a ", max_size=12), max_size=4),
    st.lists(st.sampled_from(["<s>", "<|s|>", "a", " ", "<"]), max_size=5),
)
def test_spans_give_back_the_text_and_tokens_come_from_the_template_only(
    contents: list[str], frames: list[str]
) -> None:
    controls = ControlTexts.of(["<s>", "<|s|>", "<<"])
    pieces: list[str] = []
    plain: list[str] = []
    for index in range(max(len(contents), len(frames))):
        frame = "".join(frames[index : index + 1])
        content = "".join(contents[index : index + 1])
        pieces += [frame, controls.mark_controls(content, MARK)]
        plain += [frame, content]
    spans = controls.prompt_spans("".join(pieces), MARK)
    assert "".join(span.text for span in spans) == "".join(plain)
    frame_tokens = sum(frame in controls.texts for frame in frames)
    seen = sum(
        span.text.count("<s>") + span.text.count("<|s|>")
        for span in spans
        if span.has_controls
    )
    # Frames that stand next to each other may form one more: "<" and "<" here.
    assert seen <= frame_tokens
