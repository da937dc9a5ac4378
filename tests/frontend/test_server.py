"""The whole server: drains, and the real template worker."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.frontend.server import serve_openai, wall_unix_ms
from support.http_client import (
    RawClient,
    json_request,
    open_listener,
    port_of,
    running_openai,
)
from support.openai_bodies import (
    CHAT,
    COMPLETION,
    chat,
    completion,
    text_of,
)
from support.scripted_backend import (
    Gate,
    ScriptedBackend,
)


if TYPE_CHECKING:
    from skippyd.net.http_server import HttpServer


async def test_a_drain_lets_a_stream_finish() -> None:
    gate = Gate()
    backend = ScriptedBackend([["a", gate, "b"]])
    async with running_openai(backend) as running:
        client = await running.connect()
        await client.send(json_request(COMPLETION, completion(stream=True)))
        await gate.reached.wait()
        running.server.begin_drain()
        gate.opened.set()
        assert text_of((await client.reply(method="POST")).body) == "ab"
        assert await client.read_to_end() == b""


@pytest.mark.process
@pytest.mark.slow
async def test_the_server_brings_its_own_template_worker() -> None:
    backend = ScriptedBackend()
    listener = await open_listener()
    async with trio.open_nursery() as nursery:
        server: HttpServer = await nursery.start(
            partial(serve_openai, [listener], backend)
        )
        async with await trio.open_tcp_stream("127.0.0.1", port_of(listener)) as stream:
            client = RawClient(stream)
            good = await client.post(CHAT, chat())
            backend.vocabulary.chat_template = "{{ raise_exception('not so') }}"
            bad = await client.post(CHAT, chat())
        server.begin_drain()
    assert good.status == 200
    # The same text that the inline renderer of the other tests writes.
    assert bytes(t for t in backend.requests[0].prompt_tokens if t < 256) == (
        b"user: Hiassistant: "
    )
    assert (bad.status, bad.error()["code"]) == (400, "invalid_value")
    assert "not so" in str(bad.error()["message"])


def test_the_clock_counts_milliseconds_of_this_century() -> None:
    assert 1_600_000_000_000 < wall_unix_ms() < 10_000_000_000_000
