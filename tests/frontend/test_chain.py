"""One request's tokens, from a lane's thread to the client and back when it leaves."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, cast

import pytest
import trio

from skippyd.errors import FailureCode, StageFailureError
from skippyd.frontend.backend import GenerationRequest, NoFreeLaneError, SamplingChoice
from skippyd.frontend.chain import ServedChain
from skippyd.frontend.lane_pool import LanePool
from skippyd.runtime.failures import KvFullError
from support.scripted_runtime import next_token
from support.stage_room import Room, becomes, running_room


if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from skippyd.frontend.chain import LaneTokens
    from skippyd.runtime.llama.vocabulary import LlamaVocabulary

pytestmark = pytest.mark.watchdog(20)

GREEDY = SamplingChoice(0.0, 1.0, top_k=0, min_p=0.0, seed=7)
PROMPT = tuple(range(1, 12))


class EndsWith:
    """A vocabulary that knows its end token only."""

    def __init__(self, *ends: int) -> None:
        self.ends = ends

    def is_end(self, token: int) -> bool:
        """Whether it ends a generation."""
        return token in self.ends


def asked(max_tokens: int = 4, prompt: tuple[int, ...] = PROMPT) -> GenerationRequest:
    return GenerationRequest(prompt, max_tokens, sampling=GREEDY)


def drawn(count: int, prompt: tuple[int, ...] = PROMPT) -> list[int]:
    """What the scripted chain draws."""
    held = list(prompt)
    for _ in range(count):
        held.append(next_token(held))
    return held[len(prompt) :]


@contextlib.asynccontextmanager
async def served(
    room: Room, *, size: int = 2, ends: tuple[int, ...] = ()
) -> AsyncIterator[ServedChain]:
    """A chain that serves."""
    pool = LanePool(room.nodes[0], size)
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.keep)
        await becomes(lambda: pool.health.status == "ok", "serving")
        yield ServedChain(
            node=room.nodes[0],
            pool=pool,
            vocabulary=cast("LlamaVocabulary", EndsWith(*ends)),
            model_id="m",
            created_unix_s=1,
        )
        nursery.cancel_scope.cancel()


async def all_of(stream: LaneTokens) -> tuple[list[int], str]:
    """Every token, and why there are no more."""
    tokens: list[int] = []
    while True:
        batch = await stream.next_batch()
        tokens += batch.tokens
        if batch.finish is not None:
            return tokens, batch.finish


async def answer(chain: ServedChain, request: GenerationRequest) -> list[int]:
    """All tokens; a failure is carried out of the block by hand, as the server does."""
    failure: StageFailureError | None = None
    tokens: list[int] = []
    async with chain.generate(request) as stream:
        try:
            tokens, _finish = await all_of(stream)
        except StageFailureError as error:
            failure = error
    if failure is not None:
        raise failure
    return tokens


@pytest.mark.parametrize("count", [1, 2, 9])
async def test_tokens_come_in_order_up_to_the_limit(count: int) -> None:
    async with running_room() as room, served(room) as chain:
        async with chain.generate(asked(count)) as stream:
            tokens, finish = await all_of(stream)
        assert (tokens, finish) == (drawn(count), "length")
        assert stream.seed == 7
        assert room.held == [0, 0, 0]
        assert chain.context_length == room.nodes[0].config.ctx_size


async def test_an_end_token_is_the_last_one() -> None:
    third = drawn(3)[2]
    async with running_room() as room, served(room, ends=(third,)) as chain:
        async with chain.generate(asked(9)) as stream:
            tokens, finish = await all_of(stream)
        assert (tokens, finish) == (drawn(3), "stop")


async def test_whoever_has_read_the_whole_answer_may_ask_again_at_once() -> None:
    async with running_room() as room, served(room, size=1) as chain:
        for _ in range(20):
            assert await answer(chain, asked(2)) == drawn(2)


async def test_one_more_request_than_lanes_is_refused_at_once() -> None:
    async with running_room() as room, served(room, size=1) as chain:
        async with chain.generate(asked(1000)) as stream:
            await stream.next_batch()
            with pytest.raises(NoFreeLaneError):
                await answer(chain, asked())
        assert await answer(chain, asked()) == drawn(4)


async def test_a_client_that_leaves_ends_its_session_and_keeps_the_lane() -> None:
    async with running_room() as room, served(room, size=1) as chain:
        async with chain.generate(asked(100_000)) as stream:
            await stream.next_batch()
        assert room.held == [0, 0, 0]
        assert chain.pool.idle_count == 1
        assert len(room.runtimes[0].steps) < 1000
        assert await answer(chain, asked()) == drawn(4)


async def test_a_client_that_leaves_a_stalled_chain_waits_for_no_reply_timeout() -> (
    None
):
    async with running_room() as room, served(room, size=1) as chain:
        room.runtimes[2].gate.clear()
        room.runtimes[2].reached.clear()
        began = trio.current_time()
        async with chain.generate(asked(prompt=tuple(range(1, 100)))):
            await trio.to_thread.run_sync(room.runtimes[2].reached.wait)
        assert trio.current_time() - began < 2
        room.runtimes[2].gate.set()
        await becomes(lambda: chain.pool.idle_count == 1, "the lane is replaced")
        await becomes(lambda: room.held == [0, 0, 0], "sessions are free")
        await becomes(lambda: chain.health().status == "ok", "serving")
        assert await answer(chain, asked()) == drawn(4)


async def test_a_client_that_has_left_before_prefill_costs_no_prefill() -> None:
    async with running_room() as room, served(room) as chain:
        before = len(room.runtimes[0].steps)
        async with chain.generate(asked(prompt=tuple(range(1, 4000)))):
            pass
        chunks = len(room.runtimes[0].steps) - before
        assert chunks < 500
        assert room.held == [0, 0, 0]


async def test_a_refusal_of_stage_0_itself_keeps_the_lane_in_step() -> None:
    async with running_room() as room, served(room, size=1) as chain:
        (pooled,) = chain.pool._idle
        for _ in range(3):
            room.runtimes[0].failures.append(KvFullError("no cells"))
            with pytest.raises(StageFailureError, match="no cells") as caught:
                await answer(chain, asked())
            assert caught.value.code is FailureCode.KV_FULL
            assert chain.health().status == "ok"
            assert await answer(chain, asked()) == drawn(4)
        assert chain.pool._idle == [pooled]
        assert room.held == [0, 0, 0]


async def test_a_refusal_further_down_retires_the_lane_and_is_no_lost_chain() -> None:
    async with running_room() as room, served(room, size=1) as chain:
        room.runtimes[2].failures.append(KvFullError("no cells"))
        with pytest.raises(StageFailureError, match="stage-2: no cells"):
            await answer(chain, asked())
        assert chain.health().status == "ok"
        await becomes(lambda: chain.pool.idle_count == 1, "replaced")
        await becomes(lambda: room.held == [0, 0, 0], "sessions are free")
        assert await answer(chain, asked()) == drawn(4)


async def test_a_lost_stage_ends_the_stream_and_refuses_the_next_request() -> None:
    async with running_room() as room, served(room) as chain:
        async with chain.generate(asked(100_000)) as stream:
            await stream.next_batch()
            room.scopes[2].cancel()
            failure = await failure_of(stream)
        assert failure.code in {FailureCode.STAGE_LOST, FailureCode.CANCELLED}
        assert "stage-2" in failure.message
        with pytest.raises(StageFailureError, match="stage-2"):
            await answer(chain, asked())


async def failure_of(stream: LaneTokens) -> StageFailureError:
    while True:
        try:
            await stream.next_batch()
        except StageFailureError as failure:
            return failure


async def test_a_defect_of_ours_loses_no_lane() -> None:
    async with running_room() as room, served(room, size=1) as chain:
        room.runtimes[0].failures.append(ZeroDivisionError("oops"))
        with pytest.raises(StageFailureError, match="oops") as caught:
            await answer(chain, asked())
        assert caught.value.code is FailureCode.INTERNAL
        await becomes(lambda: chain.pool.idle_count == 1, "replaced")
        await becomes(lambda: chain.health().status == "ok", "serving")
        assert room.held == [0, 0, 0]
