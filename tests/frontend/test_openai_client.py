"""The official `openai` client against the server: it must simply work."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import openai
import pytest
import trio

from skippyd.errors import FailureCode, StageFailureError
from support.http_client import RunningServer, running_openai
from support.openai_bodies import MODEL
from support.scripted_backend import Gate, ScriptedBackend, Step


if TYPE_CHECKING:
    from collections.abc import Callable

    from openai.types.chat import ChatCompletionMessageParam


T = TypeVar("T")

pytestmark = pytest.mark.slow

MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
]


async def asked(running: RunningServer, question: Callable[[openai.OpenAI], T]) -> T:
    """Ask with the blocking client, in a thread."""

    def ask() -> T:
        with openai.OpenAI(
            base_url=f"http://127.0.0.1:{running.port}/v1",
            api_key="unused",
            max_retries=0,
            timeout=20,
        ) as client:
            return question(client)

    return await trio.to_thread.run_sync(ask)


async def test_it_lists_the_models() -> None:
    async with running_openai(ScriptedBackend()) as running:
        models = await asked(running, lambda client: client.models.list())
        one = await asked(running, lambda client: client.models.retrieve(MODEL))
    assert [model.id for model in models.data] == [MODEL]
    assert one == models.data[0]


async def test_it_chats() -> None:
    async with running_openai(ScriptedBackend([["Hé", "llo"]])) as running:
        answer = await asked(
            running,
            lambda client: client.chat.completions.create(
                model=MODEL,
                messages=MESSAGES,
                max_tokens=50,
                temperature=0.5,
                top_p=0.9,
                seed=11,
                stop=["END"],
                extra_body={"top_k": 5, "min_p": 0.1},
            ),
        )
    assert answer.choices[0].message.content == "Héllo"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 7
    assert answer.usage.prompt_tokens_details is not None
    assert answer.model_extra == {"seed": 11}


def streamed_chat(client: openai.OpenAI) -> tuple[str, str | None, int]:
    text, reason, total_tokens = "", None, 0
    for chunk in client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        stream=True,
        stream_options={"include_usage": True},
    ):
        if chunk.usage is not None:
            total_tokens = chunk.usage.total_tokens
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
    return text, reason, total_tokens


async def test_it_streams_a_chat() -> None:
    script: list[Step] = ["One ", b"\xf0\x9f", b"\x98\x80", " two"]
    async with running_openai(ScriptedBackend([script])) as running:
        text, reason, total_tokens = await asked(running, streamed_chat)
    assert (text, reason) == ("One 😀 two", "stop")
    assert total_tokens > 12


async def test_it_continues_a_text() -> None:
    async with running_openai(ScriptedBackend([["a b c d"]])) as running:
        answer = await asked(
            running,
            lambda client: client.completions.create(
                model=MODEL, prompt="Count:", max_tokens=5
            ),
        )
    assert answer.choices[0].text == "a b c"
    assert answer.choices[0].finish_reason == "length"


async def test_it_raises_its_own_error_for_each_refusal() -> None:
    lost = StageFailureError(FailureCode.STAGE_LOST, 1, "connection closed")
    async with running_openai(ScriptedBackend([[lost]])) as running:
        with pytest.raises(openai.InternalServerError, match="stage 1: stage lost"):
            await asked(running, streamed_chat)
        with pytest.raises(openai.NotFoundError, match="is not served here"):
            await asked(
                running,
                lambda client: client.completions.create(model="other", prompt="x"),
            )
        with pytest.raises(openai.BadRequestError, match="not supported yet"):
            await asked(
                running,
                lambda client: client.completions.create(
                    model=MODEL, prompt="x", suffix="y"
                ),
            )


async def test_it_raises_an_error_that_came_in_a_stream() -> None:
    lost = StageFailureError(FailureCode.TIMEOUT, 2, "no answer")
    async with running_openai(ScriptedBackend([["Hel", lost]])) as running:
        with pytest.raises(openai.APIError, match="stage 2: timeout") as raised:
            await asked(running, streamed_chat)
    assert raised.value.code == "timeout"


async def test_closing_its_stream_cancels_the_generation() -> None:
    backend = ScriptedBackend([["a", Gate()]])

    def leave(client: openai.OpenAI) -> str:
        with client.completions.create(model=MODEL, prompt="x", stream=True) as stream:
            return next(iter(stream)).choices[0].text

    async with running_openai(backend) as running:
        assert await asked(running, leave) == "a"
        with trio.fail_after(5):
            await backend.ended.wait()
    assert backend.active == 0
