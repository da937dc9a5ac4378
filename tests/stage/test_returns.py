"""The ways a prediction can come back, and what happens when there is none."""

from __future__ import annotations

from functools import partial

import attrs
import pytest

from skippyd.core.wire import requests
from skippyd.core.wire.auth import lane_purpose
from skippyd.core.wire.replies import predicted_token
from skippyd.errors import FailureCode, StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.net.tcp import plain_socket
from skippyd.stage import final_return, first_return
from skippyd.stage.driver import LinkTransport
from support.stage_room import (
    BRISK,
    RUN_KEY,
    becomes,
    blocking,
    dialled,
    driver_on,
    generate,
    running_room,
)


pytestmark = pytest.mark.watchdog(20)

PROMPT = [5, 6, 7, 8, 9, 10]
PATIENT = attrs.evolve(BRISK, sink=5.0)

TOLD = {
    "everybody knows the chain": (True, True, True),
    "stage 0 knows, the final stage does not": (True, False, False),
    "the final stage knows, stage 0 does not": (False, False, True),
}


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("run_key", [None, RUN_KEY], ids=["open", "keyed"])
async def test_one_end_that_knows_the_other_is_enough(
    told: str, run_key: bytes | None
) -> None:
    async with running_room(told=TOLD[told], run_key=run_key) as room:
        transport = await room.lane()
        first = await blocking(partial(generate, driver_on(transport), PROMPT, 5))
        again = await blocking(partial(generate, driver_on(transport), PROMPT, 5))
        assert first == again
        assert len(first) == 5
        assert room.flows == 0


async def test_a_final_stage_that_dials_does_so_once_for_a_lane() -> None:
    async with running_room(told=(False, False, True)) as room:
        transport = await room.lane()
        for _ in range(3):
            await blocking(partial(generate, driver_on(transport), PROMPT, 1))
        assert len(transport.lane.watched()) == 2  # downstream, and one return


@pytest.mark.slow
async def test_ends_that_do_not_know_each_other_are_both_named() -> None:
    async with running_room(told=(False, False, False)) as room:
        driver = driver_on(await room.lane())
        with pytest.raises(
            StageFailureError, match="prediction return unavailable"
        ) as caught:
            await blocking(partial(generate, driver, PROMPT, 1))
        assert caught.value.code is FailureCode.STAGE_LOST
        assert "stage 0 opened none to stage-2 at 127.0.0.1" in caught.value.message
        assert "give --topology" in caught.value.message


async def test_two_stages_know_each_other_without_a_topology() -> None:
    async with running_room(2, told=(False, False)) as room:
        transport = await room.lane()
        tokens = await blocking(partial(generate, driver_on(transport), PROMPT, 3))
        assert len(tokens) == 3


async def test_with_two_stages_the_upstream_connection_is_the_last_resort() -> None:
    """Nobody listens at stage 0, which knows no topology either."""
    async with running_room(2, told=(False, False), missing=(0,)) as room:
        transport = await room.lane()
        for _ in range(3):
            driver = driver_on(transport)
            tokens = await blocking(partial(generate, driver, PROMPT, 3))
            assert len(tokens) == 3
        assert len(transport.lane.watched()) == 1
        assert room.flows == 0


async def test_a_slow_dial_of_stage_0_and_a_hasty_one_of_the_final_both_work() -> None:
    """The final stage waits no time at all: now and then both open a connection."""
    hasty = attrs.evolve(BRISK, sink=0.0)
    async with running_room(timings=hasty) as room:
        transport = await room.lane()
        runs = [
            await blocking(partial(generate, driver_on(transport), PROMPT, 2))
            for _ in range(20)
        ]
        assert runs == [runs[0]] * 20


async def test_stage_0_waits_for_nothing_when_the_final_stage_is_patient() -> None:
    async with running_room(timings=PATIENT) as room:
        await blocking(partial(generate, driver_on(await room.lane()), PROMPT, 1))
        assert room.flows == 0


async def test_a_failure_travels_on_the_return_as_well() -> None:
    """A diagnostic client that reads its return alone learns why nothing comes."""
    async with (
        running_room(2) as room,
        dialled(room.nodes[1]) as returned,
        dialled(room.nodes[1]) as lane,
    ):
        request, session = RequestId(41), SessionId(42)
        returned.send(
            requests.prediction_return_open(request_id=request, session_id=session)
        )
        await becomes(lambda: len(room.nodes[1].sinks) == 1, "bound")
        lane.send(
            requests.configure_generation(
                request_id=request, session_id=session, prompt_token_count=0
            )
        )
        await blocking(partial(lane.wait_reply, 2.0, "configure"))
        lane.send(
            requests.decode(
                request_id=request,
                session_id=session,
                pos_start=0,
                token=1,
                prompt_token_count=0,
                decode_step=0,
            )
        )
        for link in (lane, returned):
            with pytest.raises(StageFailureError, match="without activation"):
                await blocking(partial(link.wait_reply, 2.0, "decode"))


async def test_a_token_nobody_asked_for_never_reaches_the_next_request() -> None:
    async with running_room() as room:
        transport = await room.lane()
        driver = driver_on(transport)
        await blocking(partial(driver.configure, None))
        sink = room.nodes[2].sinks.find((driver.request_id, driver.session_id))
        assert sink is not None
        await blocking(driver.stop)
        sink.send(predicted_token(123))
        with pytest.raises(StageFailureError, match="nobody waits for") as caught:
            await blocking(partial(generate, driver_on(transport), PROMPT, 1))
        assert caught.value.code is FailureCode.PROTOCOL


async def test_a_return_that_closes_wakes_the_waiting_lane_at_once() -> None:
    async with running_room() as room:
        driver = driver_on(await room.lane())
        await blocking(partial(driver.configure, None))
        room.runtimes[1].gate.clear()
        sink = room.nodes[2].sinks.find((driver.request_id, driver.session_id))
        assert sink is not None
        plain_socket(sink.connection).shutdown(2)
        with pytest.raises(StageFailureError, match="direct prediction return closed"):
            await blocking(partial(driver.decode, 1))
        room.runtimes[1].gate.set()


async def test_a_request_that_was_never_configured_has_no_way_back() -> None:
    async with running_room() as room:
        driver = driver_on(await room.lane())
        with pytest.raises(StageFailureError, match="no ConfigureGeneration opened"):
            await blocking(partial(driver.decode, 1))


async def test_a_driver_over_a_connection_gets_what_a_lane_gets() -> None:
    async with running_room(run_key=RUN_KEY) as room:
        own = await blocking(partial(generate, driver_on(await room.lane()), PROMPT, 4))
        async with dialled(room.nodes[0], purpose=lane_purpose(-1, 0)) as link:
            driver = driver_on(LinkTransport(link, 5.0))
            tokens = await blocking(partial(generate, driver, PROMPT, 4))
        assert tokens == own


def test_both_ends_live_in_rooms_of_their_own() -> None:
    assert first_return.FirstReturn.__doc__ is not None
    assert final_return.FinalReturn.__doc__ is not None
