"""The official `openai` client against three stage processes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import openai
import pytest

from support.cli_chain import CliChain


if TYPE_CHECKING:
    from collections.abc import Iterator

    from openai.types.chat import ChatCompletionMessageParam

pytestmark = [pytest.mark.process, pytest.mark.native, pytest.mark.slow]

MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Why is the sky blue?"},
]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliChain]:
    """A chain that serves; every test leaves its lanes in order."""
    with CliChain.prepare(tmp_path_factory.mktemp("chain")) as chain:
        yield chain.serving()


@pytest.fixture
def client(chain: CliChain) -> Iterator[openai.OpenAI]:
    """A client of that chain."""
    url = f"http://127.0.0.1:{chain.openai_port}/v1"
    with openai.OpenAI(base_url=url, api_key="-", max_retries=0) as client:
        yield client
    chain.wait_lanes_idle()


def completion(client: openai.OpenAI, *, seed: int, temperature: float = 1.0) -> str:
    answer = client.completions.create(
        model="m", prompt="ab", max_tokens=40, temperature=temperature, seed=seed
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 40
    return answer.choices[0].text


def test_a_chat_is_the_same_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(
        model="m", messages=MESSAGES, max_tokens=40, temperature=0
    )
    stream = client.chat.completions.create(
        model="m",
        messages=MESSAGES,
        max_tokens=40,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 40
    assert chunks[-1].usage == whole.usage


def test_a_stop_string_ends_the_text_before_itself(client: openai.OpenAI) -> None:
    text = completion(client, seed=1, temperature=0)
    stop = text[10:13]
    answer = client.completions.create(
        model="m", prompt="ab", max_tokens=40, temperature=0, stop=[stop]
    )
    assert answer.choices[0].text == text[: text.index(stop)]
    assert answer.choices[0].finish_reason == "stop"
    assert completion(client, seed=1, temperature=0) == text, "the lane is in order"


def test_a_seed_repeats_a_draw_and_another_one_does_not(client: openai.OpenAI) -> None:
    first = completion(client, seed=7)
    assert completion(client, seed=7) == first
    assert completion(client, seed=8) != first


def test_lanes_answer_side_by_side(client: openai.OpenAI) -> None:
    """Streams of two lanes are read in turns, so that both are always under way.

    Their texts are not those of each alone: who lives beside whom in the unified cache
    moves the logits, split or not.
    """

    def start(prompt: str) -> openai.Stream[openai.types.Completion]:
        return client.completions.create(
            model="m", prompt=prompt, max_tokens=60, temperature=0, stream=True
        )

    streams = [start(prompt) for prompt in ("the rain", "in spain stays")]
    parts = list(itertools.zip_longest(*streams))
    for chunks in zip(*parts, strict=True):
        choices = [chunk.choices[0] for chunk in chunks if chunk is not None]
        assert choices[-1].finish_reason == "length"
        assert len("".join(choice.text for choice in choices)) >= 60
