"""What a message does at a stage, over whole chains of scripted runtimes."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import attrs
import pytest
import trio

from skippyd.core.wire import requests
from skippyd.core.wire.kinds import MessageKind
from skippyd.core.wire.messages import StageMessage
from skippyd.core.wire.sampling import SamplingBlock
from skippyd.errors import FailureCode, RemoteProtocolError, StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.runtime.failures import KvFullError
from skippyd.stage.lane import StageLane
from skippyd.stage.node import FlowControl
from support.scripted_runtime import defect, next_token
from support.stage_room import (
    BRISK,
    becomes,
    blocking,
    driver_on,
    generate,
    running_room,
)


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.wire.replies import StageReply
    from skippyd.stage.driver import LaneTransport

pytestmark = pytest.mark.watchdog(20)

PROMPT = list(range(1, 24))
IMPATIENT = attrs.evolve(BRISK, reply=0.1)


def expected_tokens(prompt: list[int], count: int) -> list[int]:
    """What the script draws."""
    held, drawn = list(prompt), list[int]()
    for _ in range(count):
        drawn.append(next_token(held))
        held.append(drawn[-1])
    return drawn


async def failure_of(transport: LaneTransport, prompt: list[int]) -> StageFailureError:
    """The failure that a request ends with."""
    driver = driver_on(transport)
    with pytest.raises(StageFailureError) as caught:
        await blocking(lambda: generate(driver, prompt, 2))
    return caught.value


FLOWS = {
    "in the background": FlowControl(),
    "in step": FlowControl(async_forward=False),
    "without credit": FlowControl(reply_credit_limit=0),
    "on little credit": FlowControl(max_inflight=1, reply_credit_limit=1),
    "on more credit than the writer holds": FlowControl(
        max_inflight=2, reply_credit_limit=6
    ),
}


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("count", [1, 2, 3, 5])
async def test_every_way_to_forward_gives_the_same_work_and_tokens(
    flow: str, count: int
) -> None:
    async with running_room(count, flow=FLOWS[flow]) as room:
        transport = await room.lane()
        for _ in range(2):
            driver = driver_on(transport)
            tokens = await blocking(partial(generate, driver, PROMPT, 3))
            assert tokens == expected_tokens(PROMPT, 3)
        first = [(s.position, s.tokens) for s in room.runtimes[0].steps]
        for runtime in room.runtimes[1:]:
            assert [(s.position, s.tokens) for s in runtime.steps] == first
            assert all(step.activation for step in runtime.steps)
        assert room.held == [0] * count
        assert room.flows == 0


async def test_lanes_that_spin_before_they_sleep_give_the_same_tokens() -> None:
    async with running_room(3, poll_us=2000) as room:
        driver = driver_on(await room.lane())
        tokens = await blocking(partial(generate, driver, PROMPT, 3))
        assert tokens == expected_tokens(PROMPT, 3)


async def test_a_middle_stage_passes_on_what_it_computed_itself() -> None:
    async with running_room(3) as room:
        driver = driver_on(await room.lane())
        await blocking(lambda: generate(driver, PROMPT, 1))
        step = room.runtimes[2].steps[0]
        assert step.activation is not None
        stage_indices = memoryview(step.activation).cast("f")[0::4]
        assert list(stage_indices) == [1.0] * len(step.tokens)


async def test_prefill_is_acknowledged_before_it_is_computed() -> None:
    async with running_room(1) as room:
        replies: list[StageReply] = []
        lane = StageLane(node=room.nodes[0], reply=replies.append)
        lane.open(patience_s=0.0)
        room.runtimes[0].failures.append(defect())
        message = requests.prefill(
            request_id=RequestId(1),
            session_id=SessionId(1),
            pos_start=0,
            tokens=(1, 2),
            prompt_token_count=3,
        )
        with pytest.raises(StageFailureError, match="llama_decode returned -3"):
            lane.handle(message)
        assert len(replies) == 1
        lane.close()
        assert room.held == [0]


async def test_a_sampling_block_reaches_the_final_stage_only() -> None:
    block = SamplingBlock(flags=1, seed=7)
    async with running_room(3) as room:
        driver = driver_on(await room.lane())
        await blocking(lambda: driver.configure(block))
        seeds = [
            [b.seed for b in runtime.configured.values() if b is not None]
            for runtime in room.runtimes
        ]
        assert seeds == [[], [], [7]]


async def test_a_rewind_and_a_trim_reach_every_stage() -> None:
    async with running_room(3) as room:
        driver = driver_on(await room.lane())

        def rewind() -> tuple[int, int]:
            driver.prefill(PROMPT[:-1])
            driver.configure(None)
            first = driver.decode(PROMPT[-1])
            driver.trim(10)
            driver.prefill(PROMPT[10:-1])
            return first, driver.decode(PROMPT[-1])

        first, again = await blocking(rewind)
        assert first == again == expected_tokens(PROMPT, 1)[0]


async def test_compute_statistics_of_every_stage_come_with_the_next_ack() -> None:
    async with running_room(3) as room:
        driver = driver_on(await room.lane())

        def work() -> None:
            driver.prefill(PROMPT[:8])
            driver.configure(None)

        await blocking(work)
        assert driver.stats is not None
        chunks = 2
        assert driver.stats.prefill_compute_observation_count == chunks * 3
        assert driver.stats.prefill_edge_observation_count == chunks * 2


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("when", ["prefill", "decode"])
async def test_a_failure_names_its_stage_and_frees_the_session_everywhere(
    at: int, when: str
) -> None:
    async with running_room(3) as room:
        transport = await room.lane()
        driver = driver_on(transport)

        def work() -> None:
            if when == "decode":
                driver.prefill(PROMPT[:-1])
                driver.configure(None)
            room.runtimes[at].failures.append(KvFullError("no cells are left"))
            generate(driver, PROMPT, 1)

        with pytest.raises(StageFailureError, match="no cells are left") as caught:
            await blocking(work)
        assert caught.value.code is FailureCode.KV_FULL
        assert caught.value.stage_index == at
        assert f"stage-{at}" in caught.value.message
        await room.close(transport)
        await becomes(lambda: room.held == [0, 0, 0], "sessions are free")
        await becomes(lambda: room.flows == 0, "flows are free")


async def test_a_stage_that_ends_is_named_to_an_idle_lane() -> None:
    async with running_room(3) as room:
        transport = await room.lane()
        await blocking(lambda: generate(driver_on(transport), PROMPT, 1))
        room.scopes[2].cancel()

        def wait_for_news() -> None:
            lane = transport.lane
            while True:
                lane.signal.wait(lane.watched(), math.inf)
                lane.on_readable()

        with pytest.raises(StageFailureError, match="stage-2 is lost") as caught:
            await blocking(wait_for_news)
        assert caught.value.code is FailureCode.STAGE_LOST


async def test_a_stage_that_hangs_is_named_by_the_one_before_it() -> None:
    """Stage 0 waits a little longer than stage 1 for the same acknowledgement."""
    async with running_room(3, timings=IMPATIENT) as room:
        transport = await room.lane()
        await blocking(lambda: generate(driver_on(transport), PROMPT, 1))
        room.runtimes[2].gate.clear()
        failure = await failure_of(transport, PROMPT)
        assert failure.code is FailureCode.TIMEOUT
        assert "stage-2 did not answer" in failure.message
        room.runtimes[2].gate.set()


@pytest.mark.slow
async def test_a_prediction_that_does_not_come_names_who_may_hang() -> None:
    async with running_room(3, timings=IMPATIENT) as room:
        driver = driver_on(await room.lane())
        await blocking(lambda: driver.configure(None))
        room.runtimes[1].gate.clear()
        with pytest.raises(StageFailureError, match="between stage-1 and") as caught:
            await blocking(lambda: driver.decode(1))
        assert caught.value.code is FailureCode.TIMEOUT
        room.runtimes[1].gate.set()


@pytest.mark.parametrize("word", ["cancel", "interrupt"])
@pytest.mark.parametrize("at", ["prefill", "decode"])
async def test_every_wait_of_a_lane_ends_when_it_is_told_so(word: str, at: str) -> None:
    """A reply may take 5 s here; cancelled lanes get 0.1 s."""
    async with running_room(3) as room:
        transport = await room.lane()
        driver = driver_on(transport)
        await blocking(lambda: driver.configure(None))
        room.runtimes[2].gate.clear()
        room.runtimes[2].reached.clear()

        def work() -> None:
            if at == "prefill":
                driver.prefill(PROMPT * 4)
            driver.decode(1)

        async def speak() -> None:
            await blocking(room.runtimes[2].reached.wait)
            if word == "cancel":
                transport.lane.signal.cancel()
            else:
                transport.lane.interrupt()

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(speak)
            failure = await raised(work)
        assert failure.code in {FailureCode.CANCELLED, FailureCode.STAGE_LOST}
        assert trio.current_time() - began < 3
        room.runtimes[2].gate.set()


async def raised(work: Callable[[], None]) -> StageFailureError:
    """The failure that some blocking work ends with."""
    try:
        await blocking(work)
    except StageFailureError as failure:
        return failure
    raise AssertionError("the lane did not fail")


UNSERVED = [
    MessageKind.STATE_IMPORT,
    MessageKind.DECODE_READOUT,
    MessageKind.PROBE_PREFILL,
    MessageKind.VERIFY_WINDOW,
    MessageKind.RETIRE_VERIFY_WINDOW,
    MessageKind.PREDICTION_RETURN_OPEN,
]


@pytest.mark.parametrize("kind", UNSERVED)
async def test_a_kind_that_is_not_served_is_refused_by_name(kind: MessageKind) -> None:
    async with running_room(1) as room:
        message = StageMessage(
            kind=kind, request_id=RequestId(1), session_id=SessionId(1)
        )
        with pytest.raises(StageFailureError, match=kind.name) as caught:
            (await room.lane()).lane.handle(message)
        assert caught.value.code is FailureCode.KIND_NOT_SERVED


async def test_a_message_that_contradicts_itself_is_refused() -> None:
    async with running_room(1) as room:
        message = StageMessage(
            kind=MessageKind.DECODE_EMBD,
            request_id=RequestId(1),
            session_id=SessionId(1),
            phase=1,
        )
        with pytest.raises(RemoteProtocolError, match="does not match message kind"):
            (await room.lane()).lane.handle(message)


async def test_chat_metadata_is_refused_not_dropped() -> None:
    async with running_room(1) as room:
        message = requests.configure_generation(
            request_id=RequestId(1),
            session_id=SessionId(1),
            prompt_token_count=1,
            chat_metadata="{}",
        )
        with pytest.raises(StageFailureError, match="not supported yet") as caught:
            (await room.lane()).lane.handle(message)
        assert caught.value.code is FailureCode.SAMPLING


async def test_work_without_a_position_is_refused() -> None:
    async with running_room(1) as room:
        message = requests.decode(
            request_id=RequestId(1),
            session_id=SessionId(1),
            pos_start=-1,
            token=1,
            prompt_token_count=1,
            decode_step=0,
        )
        with pytest.raises(StageFailureError, match="send pos_start") as caught:
            (await room.lane()).lane.handle(message)
        assert caught.value.code is FailureCode.BAD_BATCH


async def test_one_step_of_closing_that_fails_does_not_stop_the_others() -> None:
    async with running_room(2) as room:
        transport = await room.lane()
        driver = driver_on(transport)
        await blocking(lambda: driver.configure(None))
        room.runtimes[0].release_failure = defect()
        await room.close(transport)
        assert room.nodes[0].open_lanes == 0
        await becomes(lambda: room.nodes[1].open_lanes == 0, "the other end noticed")
