from __future__ import annotations

from skippyd.core.telemetry.answer_times import CANCELLED_STATUS, AnswerTimes
from skippyd.core.telemetry.names import Attribute, SpanName


MS = 1_000_000


def test_an_answer_says_when_its_first_token_came_and_what_the_rest_took() -> None:
    times = AnswerTimes(100 * MS, prompt_tokens=8)
    for at in (150, 170, 230):
        times.came(at * MS)
    times.completion_tokens, times.status = 5, 200
    summary = times.summary(240 * MS, "stage-0")
    assert summary.name is SpanName.OPENAI_REQUEST_SUMMARY
    assert summary.elapsed_ns == 140 * MS
    assert summary.attributes == {
        Attribute.HTTP_STATUS: 200,
        Attribute.PROMPT_TOKENS: 8,
        Attribute.COMPLETION_TOKENS: 5,
        Attribute.STAGE_ID: "stage-0",
        Attribute.TTFT_MS: 50.0,
        Attribute.TPOT_MS: 20.0,
    }


def test_one_token_has_no_time_per_further_token() -> None:
    times = AnswerTimes(1, prompt_tokens=1, completion_tokens=1)
    times.came(2)
    assert Attribute.TPOT_MS not in times.summary(3).attributes


def test_an_answer_without_a_token_measured_nothing() -> None:
    assert AnswerTimes(1, prompt_tokens=8).summary(2).attributes == {
        Attribute.HTTP_STATUS: CANCELLED_STATUS,
        Attribute.PROMPT_TOKENS: 8,
        Attribute.COMPLETION_TOKENS: 0,
    }


def test_a_clock_that_went_back_makes_no_negative_time() -> None:
    times = AnswerTimes(100, prompt_tokens=1, completion_tokens=2)
    times.came(50)
    times.came(40)
    attributes = times.summary(30).attributes
    assert (attributes[Attribute.TTFT_MS], attributes[Attribute.TPOT_MS]) == (0, 0)
