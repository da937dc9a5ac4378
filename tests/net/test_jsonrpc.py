"""Requests, replies and notifications both ways, and peers that break the rules."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.net.jsonrpc import RpcConnection, RpcLimits
from skippyd.net.jsonrpc_messages import RpcCode, RpcError
from skippyd.net.websocket import ChannelClosedError
from support.text_channels import MemoryChannel, channel_pair


if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


async def answer(method: str, params: object) -> object:
    match method:
        case "echo":
            return params
        case "refuse":
            raise RpcError(RpcCode.REFUSED, "no", {"hint": "ask again"})
        case "break":
            raise KeyError("a secret of ours")
        case "wait":
            return await trio.sleep_forever()
        case "long":
            return "x" * 20_000
        case "strange":
            return {1, 2}
        case _:
            raise RpcError(RpcCode.UNKNOWN_METHOD, method)


@asynccontextmanager
async def served(
    handler: Callable[[str, object], Awaitable[object]] = answer,
    on_notification: Callable[[str, object], None] = lambda _m, _p: None,
    limits: RpcLimits | None = None,
) -> AsyncIterator[RpcConnection]:
    """A caller whose peer serves `handler`."""
    left, right = channel_pair()
    caller = RpcConnection(left, limits=limits or RpcLimits())
    server = RpcConnection(
        right,
        handler=handler,
        on_notification=on_notification,
        limits=limits or RpcLimits(),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await nursery.start(caller.run)
        yield caller
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def raw_peer(
    limits: RpcLimits | None = None,
) -> AsyncIterator[tuple[MemoryChannel, list[str]]]:
    """The other end of a served channel, to write anything on; and how it ended."""
    left, right = channel_pair()
    server = RpcConnection(right, handler=answer, limits=limits or RpcLimits())
    ended: list[str] = []

    async def run() -> None:
        ended.append(await server.run())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield left, ended
        nursery.cancel_scope.cancel()


async def reply(channel: MemoryChannel) -> dict[str, object]:
    document: dict[str, object] = json.loads(await channel.receive())
    return document


async def test_a_request_gets_its_result() -> None:
    async with served() as caller:
        assert await caller.call("echo", {"term": "7"}) == {"term": "7"}
        assert caller.open_calls == 0


async def test_answers_find_their_callers_in_any_order() -> None:
    release = {name: trio.Event() for name in "abc"}
    seen: list[object] = []

    async def handler(_: str, params: object) -> object:
        assert isinstance(params, dict)
        await release[params["name"]].wait()
        return params

    async with served(handler) as caller, trio.open_nursery() as nursery:

        async def ask(name: str) -> None:
            seen.append(await caller.call("ask", {"name": name}))

        for name in "abc":
            nursery.start_soon(ask, name)
        for name in "cab":
            await trio.testing.wait_all_tasks_blocked()
            release[name].set()
        await trio.testing.wait_all_tasks_blocked()
    assert seen == [{"name": "c"}, {"name": "a"}, {"name": "b"}]


async def test_a_refusal_carries_code_words_and_data() -> None:
    async with served() as caller:
        with pytest.raises(RpcError, match=r"^no$") as caught:
            await caller.call("refuse")
        assert caught.value.code == RpcCode.REFUSED
        assert caught.value.data == {"hint": "ask again"}


@pytest.mark.parametrize("method", ["break", "strange"])
async def test_a_fault_of_a_handler_ends_its_request_only(method: str) -> None:
    async with served() as caller:
        with pytest.raises(RpcError, match="failed inside this node") as caught:
            await caller.call(method)
        assert caught.value.code == RpcCode.INTERNAL
        assert "secret" not in str(caught.value)
        assert await caller.call("echo", {}) == {}


async def test_an_answer_that_is_too_long_is_told_instead() -> None:
    async with served() as caller:
        with pytest.raises(RpcError, match="too long"):
            await caller.call("long")


async def test_an_unknown_method_is_refused_by_name() -> None:
    left, right = channel_pair()
    async with trio.open_nursery() as nursery:
        caller = RpcConnection(left)
        await nursery.start(caller.run)
        await nursery.start(RpcConnection(right).run)
        with pytest.raises(RpcError, match="'gossip'") as caught:
            await caller.call("gossip")
        assert caught.value.code == RpcCode.UNKNOWN_METHOD
        nursery.cancel_scope.cancel()


async def test_notifications_come_in_order_and_get_no_answer() -> None:
    seen: list[tuple[str, object]] = []
    async with served(on_notification=lambda m, p: seen.append((m, p))) as caller:
        await caller.notify("status", {"n": 1})
        await caller.notify("status", {"n": 2})
        assert await caller.call("echo", {}) == {}
    assert seen == [("status", {"n": 1}), ("status", {"n": 2})]


async def test_requests_over_the_limit_are_refused_while_others_wait() -> None:
    async with raw_peer(RpcLimits(served_requests=2)) as (peer, _):
        for number in range(2):
            await peer.send(f'{{"jsonrpc":"2.0","id":{number},"method":"wait"}}')
        await peer.send('{"jsonrpc":"2.0","id":9,"method":"echo"}')
        refused = await reply(peer)
        assert refused["id"] == 9
        assert refused["error"] == {
            "code": RpcCode.TOO_MANY_REQUESTS,
            "message": "2 requests are open; wait for one to end",
        }


async def test_own_calls_over_the_limit_are_refused_here() -> None:
    async with (
        served(limits=RpcLimits(open_calls=1)) as caller,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(caller.call, "wait"))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RpcError, match="wait for an answer already"):
            await caller.call("echo")
        nursery.cancel_scope.cancel()


async def test_a_call_that_was_given_up_leaves_nothing_behind() -> None:
    async with served() as caller:
        with trio.move_on_after(0.01) as scope:
            await caller.call("wait")
        assert scope.cancelled_caught
        assert caller.open_calls == 0
        assert await caller.call("echo", {}) == {}


async def test_open_calls_fail_when_the_channel_ends() -> None:
    left, right = channel_pair()
    caller = RpcConnection(left)
    async with trio.open_nursery() as nursery:
        await nursery.start(caller.run)

        async def ask() -> None:
            with pytest.raises(ChannelClosedError, match="gone"):
                await caller.call("wait")

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        await right.close()
    with pytest.raises(ChannelClosedError, match="gone"):
        await caller.call("echo")


async def test_handlers_end_with_the_channel() -> None:
    cancelled = trio.Event()

    async def handler(_: str, _params: object) -> object:
        try:
            return await trio.sleep_forever()
        finally:
            cancelled.set()

    left, right = channel_pair()
    async with trio.open_nursery() as nursery:
        await nursery.start(RpcConnection(right, handler=handler).run)
        await left.send('{"jsonrpc":"2.0","id":1,"method":"wait"}')
        await trio.testing.wait_all_tasks_blocked()
        await left.close()
        await cancelled.wait()
        assert cancelled.is_set()


@pytest.mark.parametrize(
    "text",
    ["", "garbage", "[" * 1000, '{"jsonrpc":"1.0"}', "[]", '{"jsonrpc":"2.0","id":1}'],
)
async def test_a_peer_that_speaks_something_else_is_told_and_left(text: str) -> None:
    async with raw_peer() as (peer, ended):
        await peer.send(text)
        answered = await reply(peer)
        assert answered["id"] is None
        with pytest.raises(ChannelClosedError):
            await peer.receive()
        await trio.testing.wait_all_tasks_blocked()
        assert ended
        assert "cannot be used" in ended[0]


async def test_an_id_that_is_open_cannot_be_used_again() -> None:
    async with raw_peer() as (peer, _):
        for _ in range(2):
            await peer.send('{"jsonrpc":"2.0","id":"a","method":"wait"}')
        refused = await reply(peer)
        assert refused["id"] == "a"
        assert "a request of this id is open" in str(refused["error"])


async def test_a_notification_that_cannot_be_used_ends_the_connection() -> None:
    def refuse(_: str, _params: object) -> None:
        raise RpcError(RpcCode.INVALID_PARAMS, "no such status")

    left, right = channel_pair()
    server = RpcConnection(right, on_notification=refuse)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await left.send('{"jsonrpc":"2.0","method":"status_update"}')
        assert "no such status" in str(await reply(left))
    assert right.closed == "no such status"


async def test_answers_to_nobody_are_ignored() -> None:
    async with raw_peer() as (peer, ended):
        await peer.send('{"jsonrpc":"2.0","id":77,"result":1}')
        await peer.send('{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}')
        await peer.send('{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}')
        await peer.send('{"jsonrpc":"2.0","id":3,"method":"echo","params":{"a":1}}')
        assert (await reply(peer))["result"] == {"a": 1}
        assert not ended
