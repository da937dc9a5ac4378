from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from skippyd.core.openai.errors import timed_out
from skippyd.core.openai.responses import AnswerHead, FinishReason, Usage
from skippyd.core.openai.sse import EventEncoder, error_events


VECTORS = Path(__file__).parents[2] / "vectors" / "openai"


def head(prefix: str) -> AnswerHead:
    return AnswerHead(
        f"{prefix}-1700000000123", 1_700_000_000, model="org/m:Q4", seed=7
    )


def vector(name: str) -> bytes:
    """The bytes below the line."""
    return (VECTORS / name).read_bytes().partition(b"----\n")[2]


def stream(encoder: EventEncoder, reason: FinishReason) -> bytes:
    events = encoder.opening + encoder.text("Hé") + encoder.text('\n"x"')
    return events + encoder.finish(reason, Usage(5, 3))


def test_a_chat_stream_is_byte_for_byte_the_golden_one() -> None:
    encoder = EventEncoder.for_chat(head("chatcmpl"), include_usage=True)
    assert stream(encoder, "stop") == vector("chat-stream.txt")


def test_a_completion_stream_is_byte_for_byte_the_golden_one() -> None:
    encoder = EventEncoder.for_completion(head("cmpl"), include_usage=False)
    assert stream(encoder, "length") == vector("completion-stream.txt")


@given(st.text())
def test_any_text_comes_back_out_of_its_event(text: str) -> None:
    encoder = EventEncoder.for_chat(head("chatcmpl"), include_usage=False)
    event = encoder.text(text)
    assert event.count(b"\n") == 2
    chunk = json.loads(event.removeprefix(b"data: "))
    assert chunk["choices"][0]["delta"]["content"] == text


def test_a_model_name_that_looks_like_a_text_place_does_no_harm() -> None:
    odd = AnswerHead("chatcmpl-1", 1, model='"\0text\0"', seed=1)
    event = EventEncoder.for_chat(odd, include_usage=False).text("x")
    assert json.loads(event.removeprefix(b"data: "))["model"] == '"\0text\0"'


def test_an_error_in_a_stream_is_one_event_and_the_end() -> None:
    events = error_events(timed_out("stage 1: timeout"))
    first, done, rest = events.split(b"\n\n")
    assert json.loads(first.removeprefix(b"data: "))["error"]["code"] == "timeout"
    assert (done, rest) == (b"data: [DONE]", b"")
