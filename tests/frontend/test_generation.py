"""The life of a generation against a chain that follows a script."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.errors import FailureCode, StageFailureError
from skippyd.frontend.backend import TokenBatch
from support.http_client import RawClient, json_request, running_openai
from support.openai_bodies import (
    CHAT,
    COMPLETION,
    chat,
    completion,
    events,
    text_of,
)
from support.scripted_backend import (
    END_TOKEN,
    Gate,
    ScriptedBackend,
)


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.telemetry.span import Span


async def test_two_answers_in_one_millisecond_have_two_ids() -> None:
    async with running_openai(ScriptedBackend()) as running:
        client = await running.connect()
        ids = [(await client.post(CHAT, chat())).json()["id"] for _ in range(2)]
    assert ids == ["chatcmpl-1700000000123", "chatcmpl-1700000000124"]


async def test_sampling_and_limits_reach_the_chain() -> None:
    backend = ScriptedBackend(context_length=100)
    async with running_openai(backend) as running:
        client = await running.connect()
        fields = {"temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0, "seed": 9}
        reply = await client.post(COMPLETION, completion(max_tokens=5, **fields))
        await client.post(COMPLETION, completion())
        await client.post(COMPLETION, completion(max_tokens=1000))
    given, defaults, clamped = backend.requests
    assert given.max_tokens == 5
    assert given.sampling.seed == 9
    assert (given.sampling.temperature, given.sampling.top_p) == (0.0, 0.5)
    assert (given.sampling.top_k, given.sampling.min_p) == (3, 0.0)
    assert reply.json()["seed"] == 9
    assert defaults.sampling.seed is None
    # "Once" and the begin token leave 95 of 100.
    assert (defaults.max_tokens, clamped.max_tokens) == (95, 95)


async def test_max_tokens_ends_with_length() -> None:
    async with running_openai(ScriptedBackend([["abcdef"]])) as running:
        reply = await (await running.connect()).post(
            COMPLETION, completion(max_tokens=3)
        )
    choice = reply.json()["choices"][0]  # type: ignore[index]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert reply.json()["usage"]["completion_tokens"] == 3  # type: ignore[index]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_stop_text_ends_the_answer_and_the_generation(*, stream: bool) -> None:
    gate = Gate()
    backend = ScriptedBackend([["one E", "N", "D two", gate]])
    async with running_openai(backend) as running:
        body = completion(stop=["END"], stream=stream)
        reply = await (await running.connect()).post(COMPLETION, body)
    assert backend.active == 0
    assert not gate.reached.is_set()
    if stream:
        assert text_of(reply.body) == "one "
    else:
        assert reply.json()["choices"][0]["text"] == "one "  # type: ignore[index]


async def test_an_end_token_is_counted_and_has_no_text() -> None:
    script = [TokenBatch((*b"ab", END_TOKEN), "stop")]
    async with running_openai(ScriptedBackend([script])) as running:
        reply = await (await running.connect()).post(COMPLETION, completion())
    assert reply.json()["choices"][0]["text"] == "ab"  # type: ignore[index]
    assert reply.json()["usage"]["completion_tokens"] == 3  # type: ignore[index]


async def test_a_busy_chain_answers_429_and_is_free_again() -> None:
    gate = Gate()
    backend = ScriptedBackend([["a", gate]], lanes=1)
    async with running_openai(backend) as running:
        first, second = await running.connect(), await running.connect()
        await first.send(json_request(COMPLETION, completion()))
        await gate.reached.wait()
        for stream in (False, True):
            busy = await second.post(COMPLETION, completion(stream=stream))
            assert (busy.status, busy.headers["retry-after"]) == (429, "1")
            assert busy.error()["code"] == "rate_limit_exceeded"
        gate.opened.set()
        assert (await first.reply(method="POST")).status == 200
        assert (await second.post(COMPLETION, completion())).status == 200


FAILURES: Sequence[tuple[FailureCode, int]] = [
    (FailureCode.KV_FULL, 429),
    (FailureCode.STAGE_LOST, 502),
    (FailureCode.TIMEOUT, 504),
    (FailureCode.INTERNAL, 500),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("failure", "status"), FAILURES)
async def test_a_failure_before_the_first_token_has_its_own_status(
    failure: FailureCode, status: int, *, stream: bool
) -> None:
    error = StageFailureError(failure, 1, "stage-1 closed the connection")
    backend = ScriptedBackend([[error]])
    async with running_openai(backend) as running:
        reply = await (await running.connect()).post(CHAT, chat(stream=stream))
        again = await (await running.connect()).post(CHAT, chat(stream=stream))
    assert reply.status == status
    assert str(reply.error()["message"]).startswith("stage 1: ")
    assert backend.active == 0
    assert again.status == 200


async def test_a_chain_that_refuses_on_entry_is_told_too() -> None:
    error = StageFailureError(FailureCode.FENCED, 2, "a newer run took the stage")
    async with running_openai(ScriptedBackend(enter_error=error)) as running:
        reply = await (await running.connect()).post(CHAT, chat())
    assert (reply.status, reply.error()["code"]) == (502, "service_unavailable")


async def test_a_failure_in_a_stream_is_one_event_and_the_end() -> None:
    error = StageFailureError(FailureCode.STAGE_LOST, 1, "connection closed")
    async with running_openai(ScriptedBackend([["Hel", error]])) as running:
        client = await running.connect()
        reply = await client.post(CHAT, chat(stream=True))
        assert reply.status == 200
        last = events(reply.body)[-1]["error"]
        assert isinstance(last, dict)
        assert last["code"] == "service_unavailable"
        assert last["message"].startswith("stage 1: stage lost")
        assert (await client.post(CHAT, chat())).status == 200


async def test_a_silent_chain_is_given_up() -> None:
    backend = ScriptedBackend([[Gate()]])
    async with running_openai(backend, token_deadline_s=0.05) as running:
        reply = await (await running.connect()).post(CHAT, chat())
    assert (reply.status, reply.error()["code"]) == (504, "timeout")
    assert backend.active == 0


async def _hang_up(client: RawClient, backend: ScriptedBackend) -> None:
    await client.stream.aclose()
    with trio.fail_after(5):
        await backend.ended.wait()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_cancels_its_generation(*, stream: bool) -> None:
    gate = Gate()
    backend = ScriptedBackend([["a", gate]])
    async with running_openai(backend) as running:
        client = await running.connect()
        await client.send(json_request(CHAT, chat(stream=stream)))
        await gate.reached.wait()
        assert backend.active == 1
        await _hang_up(client, backend)
        assert backend.active == 0
        assert (await (await running.connect()).post(CHAT, chat())).status == 200


async def test_a_lane_lost_after_the_answer_does_not_spoil_it() -> None:
    error = StageFailureError(FailureCode.STAGE_LOST, 1, "no answer to Stop")
    async with running_openai(ScriptedBackend(leave_error=error)) as running:
        reply = await (await running.connect()).post(COMPLETION, completion())
    assert reply.status == 200


async def test_a_failure_after_a_ping_comes_as_an_event() -> None:
    gate = Gate()
    error = StageFailureError(FailureCode.STAGE_LOST, 1, "killed")
    backend = ScriptedBackend([[gate, error]])
    async with running_openai(backend, ping_every_s=0.02) as running:
        client = await running.connect()
        await client.send(json_request(CHAT, chat(stream=True)))
        await client.read_until(b": ping")
        gate.opened.set()
        seen = await client.read_until(b"0\r\n\r\n")
    assert b'"code":"service_unavailable"' in seen
    assert seen.index(b'"error"') < seen.index(b"data: [DONE]")


async def test_a_large_body_is_parsed_all_the_same() -> None:
    backend = ScriptedBackend(context_length=2**20)
    prompt = "long " * 60_000
    async with running_openai(backend) as running:
        reply = await (await running.connect()).post(
            COMPLETION, completion(prompt=prompt)
        )
    assert reply.status == 200
    assert len(backend.requests[0].prompt_tokens) == 300_001


async def test_each_answer_leaves_one_summary_however_it_ended() -> None:
    spans: list[Span] = []
    lost = StageFailureError(FailureCode.STAGE_LOST, 1, "stage-1 is gone")
    backend = ScriptedBackend([["abc"], [lost]])
    async with running_openai(backend, record=spans.append) as running:
        client = await running.connect()
        await client.post(COMPLETION, completion(max_tokens=3))
        await client.post(COMPLETION, completion(max_tokens=3))
    done, failed = (span.attributes for span in spans)
    assert {span.name for span in spans} == {SpanName.OPENAI_REQUEST_SUMMARY}
    assert (done[Attribute.HTTP_STATUS], failed[Attribute.HTTP_STATUS]) == (200, 502)
    assert done[Attribute.COMPLETION_TOKENS] == 3
    assert {Attribute.TTFT_MS, Attribute.TPOT_MS} <= set(done)
    assert Attribute.TTFT_MS not in failed
