"""Tokens that come as foreseen take the short way, and give what the long way gives."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.core.wire import requests
from skippyd.core.wire.auth import lane_purpose
from skippyd.errors import FailureCode, StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.runtime.failures import KvFullError
from skippyd.stage.driver import LinkTransport
from support.scripted_runtime import defect, next_token
from support.stage_room import (
    RUN_KEY,
    becomes,
    blocking,
    dialled,
    driver_on,
    generate,
    identities,
    running_room,
    tls_tables,
)


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.stage.driver import ChainDriver
    from support.stage_room import Room

pytestmark = pytest.mark.watchdog(20)

PROMPT = list(range(1, 10))
COUNT = 6


def drawn_after(prompt: list[int], count: int) -> list[int]:
    """What the script draws."""
    held = list(prompt)
    for _ in range(count):
        held.append(next_token(held))
    return held[len(prompt) :]


def short_ways(room: Room) -> list[int]:
    """Of each stage, the tokens that took the short way."""
    return [sum(row.runs for row in r.rows.values()) for r in room.runtimes]


def begin(driver: ChainDriver, prompt: list[int]) -> None:
    """Prefill and configure a request."""
    driver.prefill(prompt[:-1])
    driver.configure(None)


def decode(driver: ChainDriver, token: int, count: int) -> list[int]:
    """Decode some tokens after this one."""
    tokens = [token]
    for _ in range(count):
        tokens.append(driver.decode(tokens[-1]))
    return tokens[1:]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("sent_share", [0.0, 0.5, 1.0])
async def test_every_token_but_the_first_takes_the_short_way(
    count: int, sent_share: float
) -> None:
    """Whatever of a frame the row itself could send; see the next test for answers."""
    async with running_room(count) as room:
        for runtime in room.runtimes[:-1]:
            runtime.sent_share = sent_share
        transport = await room.lane()
        for request in (1, 2):
            driver = driver_on(transport)
            tokens = await blocking(partial(generate, driver, PROMPT, COUNT))
            assert tokens == drawn_after(PROMPT, COUNT)
            assert short_ways(room) == [request * (COUNT - 1)] * count
        first = [(s.position, s.tokens) for s in room.runtimes[0].steps]
        for runtime in room.runtimes[1:]:
            assert [(s.position, s.tokens) for s in runtime.steps] == first
        assert room.held == [0] * count
        assert room.flows == 0


async def test_an_answer_that_the_row_does_not_send_is_sent_all_the_same() -> None:
    async with running_room(3) as room:
        room.runtimes[2].sent_share = 0.0
        driver = driver_on(await room.lane())
        tokens = await blocking(partial(generate, driver, PROMPT, COUNT))
        assert tokens == drawn_after(PROMPT, COUNT)


async def test_half_an_answer_ends_the_connection_and_is_told() -> None:
    """Another lane may have written behind the half: it must never be read on."""
    async with running_room(3) as room:
        driver = driver_on(await room.lane())
        await blocking(lambda: begin(driver, PROMPT))
        token = await blocking(lambda: driver.decode(PROMPT[-1]))
        room.runtimes[2].sent_share = 0.5
        with pytest.raises(StageFailureError) as caught:
            await blocking(lambda: driver.decode(token))
        assert caught.value.code is FailureCode.STAGE_LOST


async def test_two_requests_in_turn_on_one_lane_are_not_mixed_up() -> None:
    async with running_room(3) as room:
        transport = await room.lane()
        one, two = driver_on(transport), driver_on(transport)
        others = [40, *PROMPT]
        await blocking(lambda: begin(one, PROMPT))
        await blocking(lambda: begin(two, others))
        tokens: dict[ChainDriver, list[int]] = {one: PROMPT[-1:], two: others[-1:]}
        for driver, _turn in itertools.product((one, two), range(3)):
            more = await blocking(partial(decode, driver, tokens[driver][-1], 2))
            tokens[driver] += more
        assert tokens[one][1:] == drawn_after(PROMPT, 6)
        assert tokens[two][1:] == drawn_after(others, 6)


async def test_lanes_at_the_same_time_are_not_mixed_up() -> None:
    async with running_room(3) as room:
        drivers = [driver_on(await room.lane()) for _ in range(3)]
        prompts = [[*PROMPT, extra] for extra in (50, 60, 70)]
        held = [list(prompt) for prompt in prompts]
        for driver, prompt in zip(drivers, prompts, strict=True):
            await blocking(partial(begin, driver, prompt))
        for _ in range(COUNT):
            for driver, tokens in zip(drivers, held, strict=True):
                tokens.append(await blocking(partial(driver.decode, tokens[-1])))
        for prompt, tokens in zip(prompts, held, strict=True):
            assert tokens[len(prompt) :] == drawn_after(prompt, COUNT)


async def test_a_rewind_takes_the_long_way_and_the_rest_the_short_one_again() -> None:
    async with running_room(3) as room:
        driver = driver_on(await room.lane())
        await blocking(lambda: begin(driver, PROMPT))
        first = await blocking(lambda: decode(driver, PROMPT[-1], 4))
        await blocking(lambda: driver.trim(len(PROMPT) + 1))
        before = short_ways(room)
        assert (
            await blocking(lambda: decode(driver, first[1], 3))
            == drawn_after(PROMPT, 5)[2:]
        )
        assert short_ways(room) == [ways + 2 for ways in before]


async def test_a_driver_that_sends_messages_gets_the_same() -> None:
    """Over a connection to stage 0, as verify does: each stage knows the next token."""
    async with running_room(3, run_key=RUN_KEY) as room:
        purpose = lane_purpose(-1, 0)
        async with dialled(room.nodes[0], purpose=purpose) as link:
            driver = driver_on(LinkTransport(link, 5.0))
            tokens = await blocking(partial(generate, driver, PROMPT, COUNT))
            assert tokens == drawn_after(PROMPT, COUNT)
            assert short_ways(room) == [COUNT - 1] * 3


async def test_under_tls_tokens_are_foreseen_too(tmp_path: Path) -> None:
    chain = identities(tmp_path, 3)
    async with running_room(3, run_key=RUN_KEY, tls=tls_tables(chain)) as room:
        driver = driver_on(await room.lane())
        tokens = await blocking(partial(generate, driver, PROMPT, COUNT))
        assert tokens == drawn_after(PROMPT, COUNT)
        assert short_ways(room) == [COUNT - 1] * 3


async def test_a_token_that_fails_at_stage_0_leaves_the_lane_good() -> None:
    async with running_room(3) as room:
        transport = await room.lane()
        driver = driver_on(transport)
        await blocking(lambda: begin(driver, PROMPT))
        token = await blocking(lambda: decode(driver, PROMPT[-1], 2)[-1])
        room.runtimes[0].failures.append(KvFullError("no 1 free cells"))
        with pytest.raises(StageFailureError, match="stage-0: no 1 free") as caught:
            await blocking(lambda: driver.decode(token))
        assert caught.value.code is FailureCode.KV_FULL
        await blocking(lambda: driver.abandon(transport))
        tokens = await blocking(partial(generate, driver_on(transport), PROMPT, COUNT))
        assert tokens == drawn_after(PROMPT, COUNT)


@pytest.mark.parametrize("index", [1, 2])
async def test_a_token_that_fails_at_a_later_stage_is_told_by_name(index: int) -> None:
    async with running_room(3) as room:
        driver = driver_on(await room.lane())
        await blocking(lambda: begin(driver, PROMPT))
        token = await blocking(lambda: decode(driver, PROMPT[-1], 2)[-1])
        room.runtimes[index].failures.append(defect())
        with pytest.raises(StageFailureError, match=f"stage-{index}: llama_decode"):
            await blocking(lambda: driver.decode(token))
        await becomes(lambda: room.held[1:] == [0, 0], "sessions are released")


@pytest.mark.parametrize("index", [1, 2])
async def test_a_stage_that_ends_while_it_waits_for_a_token_is_told(index: int) -> None:
    async with running_room(3) as room:
        driver = driver_on(await room.lane())
        await blocking(lambda: begin(driver, PROMPT))
        token = await blocking(lambda: decode(driver, PROMPT[-1], 2)[-1])
        room.scopes[index].cancel()
        await becomes(lambda: room.nodes[index].open_lanes == 0, "the lane is closed")
        with pytest.raises(StageFailureError) as caught:
            await blocking(lambda: driver.decode(token))
        assert caught.value.code in {FailureCode.STAGE_LOST, FailureCode.CANCELLED}


async def test_a_lane_that_waits_for_a_token_ends_when_it_is_interrupted() -> None:
    async with running_room(2) as room:
        transport = await room.lane()
        driver = driver_on(transport)
        await blocking(lambda: begin(driver, PROMPT))
        token = await blocking(lambda: decode(driver, PROMPT[-1], 2)[-1])
        room.runtimes[1].reached.clear()
        room.runtimes[1].gate.clear()

        def ask() -> None:
            with pytest.raises(StageFailureError) as caught:
                driver.decode(token)
            assert caught.value.code is FailureCode.CANCELLED

        async with trio.open_nursery() as nursery:
            nursery.start_soon(blocking, ask)
            await becomes(room.runtimes[1].reached.is_set, "stage 1 is at the token")
            transport.lane.interrupt()
        room.runtimes[1].gate.set()


async def test_a_message_of_another_request_is_not_taken_for_the_next_token() -> None:
    async with running_room(1) as room:
        transport = await room.lane()
        driver = driver_on(transport)
        await blocking(lambda: begin(driver, PROMPT))
        token = await blocking(lambda: decode(driver, PROMPT[-1], 2)[-1])
        before = short_ways(room)
        other = requests.decode(
            request_id=RequestId(driver.request_id + 1000),
            session_id=SessionId(driver.session_id + 1000),
            pos_start=0,
            token=token,
            prompt_token_count=1,
            decode_step=0,
        )
        await blocking(lambda: transport.send(other))
        assert transport.receive().predicted == next_token([token])
        assert short_ways(room) == before
        held = [*PROMPT, *drawn_after(PROMPT, 2)]
        assert await blocking(lambda: driver.decode(token)) == next_token(held)
