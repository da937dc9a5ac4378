"""Lanes are lent, given back, retired and closed once; the light tells the truth."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.errors import FailureCode, StageFailureError
from skippyd.frontend import lane_pool
from skippyd.frontend.backend import NoFreeLaneError
from skippyd.frontend.lane_pool import LanePool, in_lane_thread, wire_id
from support.stage_room import Room, becomes, generate, running_room


if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from skippyd.frontend.lane_pool import PooledLane

pytestmark = pytest.mark.watchdog(20)


@contextlib.asynccontextmanager
async def kept_pool(room: Room, size: int = 2) -> AsyncIterator[LanePool]:
    """A pool whose keeper runs."""
    pool = LanePool(room.nodes[0], size)
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.keep)
        yield pool
        nursery.cancel_scope.cancel()


async def serving(pool: LanePool) -> None:
    await becomes(lambda: pool.health.status == "ok", "serving")


async def use(pool: LanePool) -> list[int]:
    """One request on a lane."""
    pooled, tokens = pool.lease(), list[int]()

    def run(lane: PooledLane) -> None:
        tokens.extend(generate(lane.driver(), [1, 2, 3], 2))

    await in_lane_thread(pooled, run)
    pool.give_back(pooled)
    return tokens


def run_one(lane: PooledLane) -> None:
    assert generate(lane.driver(), [1], 1)


def lost(index: int) -> StageFailureError:
    return StageFailureError(FailureCode.STAGE_LOST, index, f"stage-{index} is lost")


async def test_all_lanes_are_there_before_the_light_is_green() -> None:
    async with running_room() as room, kept_pool(room, 3) as pool:
        assert pool.health.status == "loading"
        await serving(pool)
        assert pool.idle_count == 3
        assert room.held == [0, 0, 0]
        assert len(room.runtimes[2].steps) == 1, "the canary"


async def test_the_end_closes_every_lane_once() -> None:
    async with running_room() as room:
        async with kept_pool(room) as pool:
            await serving(pool)
            await use(pool)
        assert room.nodes[0].open_lanes == 0
        await becomes(lambda: room.nodes[1].open_lanes == 0, "stage 1 noticed")


async def test_a_lease_more_than_lanes_is_refused_with_the_remedy() -> None:
    async with running_room(1) as room, kept_pool(room, 1) as pool:
        await serving(pool)
        pooled = pool.lease()
        assert (pool.leased_count, pool.idle_count) == (1, 0)
        with pytest.raises(NoFreeLaneError, match="its one lane is busy"):
            pool.lease()
        pool.give_back(pooled)
        assert pool.lease() is pooled
        pool.give_back(pooled)


@pytest.mark.parametrize(
    ("code", "status"),
    [(FailureCode.KV_FULL, "ok"), (FailureCode.STAGE_LOST, "degraded")],
)
async def test_a_retired_lane_is_replaced_and_only_a_lost_stage_shows(
    code: FailureCode, status: str
) -> None:
    async with running_room() as room, kept_pool(room) as pool:
        await serving(pool)
        pooled = pool.lease()
        pool.retire(pooled, StageFailureError(code, 1, "the reason"))
        assert pool.health.status == status
        await serving(pool)
        await becomes(lambda: pool.idle_count == 2, "replaced")
        assert pooled not in pool._idle
        assert len(await use(pool)) == 2


async def test_a_stage_that_ends_turns_the_light_red_while_nobody_asks() -> None:
    async with running_room() as room, kept_pool(room) as pool:
        await serving(pool)
        room.scopes[2].cancel()
        await becomes(lambda: pool.health.status == "degraded", "degraded")
        assert pool.health.stage == 2
        assert "stage-2" in pool.health.reason


async def test_a_chain_that_cannot_be_reached_says_why_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_pool, "RETRY_SECONDS", 0.01)
    async with running_room(missing=(1,)) as room, kept_pool(room) as pool:
        await becomes(lambda: "is not there" in pool.health.reason, "the reason")
        assert pool.health.status == "loading"
        assert pool.health.stage == 1
        assert room.nodes[0].open_lanes <= 1


async def test_a_canary_that_fails_is_a_reason_not_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lane_pool, "RETRY_SECONDS", 0.01)
    async with running_room() as room:
        room.runtimes[1].failures.append(ValueError("a defect"))
        async with kept_pool(room) as pool:
            await becomes(lambda: "a defect" in pool.health.reason, "the reason")
            await serving(pool)
            assert pool.idle_count == 2


async def test_the_end_waits_for_lanes_that_are_out_and_interrupts_them() -> None:
    async with running_room() as room:
        outcome: list[StageFailureError] = []
        async with trio.open_nursery() as requests, kept_pool(room) as pool:
            await serving(pool)
            room.runtimes[2].gate.clear()
            room.runtimes[2].reached.clear()

            async def request() -> None:
                pooled = pool.lease()
                with trio.CancelScope(shield=True):
                    try:
                        await in_lane_thread(pooled, run_one)
                    except StageFailureError as failure:
                        outcome.append(failure)
                        pool.retire(pooled, failure)

            requests.start_soon(request)
            await trio.to_thread.run_sync(room.runtimes[2].reached.wait)
        assert [failure.code for failure in outcome] == [FailureCode.CANCELLED]
        assert room.nodes[0].open_lanes == 0
        room.runtimes[2].gate.set()


@pytest.mark.slow
async def test_a_cancelled_request_does_not_shorten_the_next_one_on_its_lane() -> None:
    async with running_room() as room, kept_pool(room, 1) as pool:
        await serving(pool)
        pooled = pool.lease()
        pooled.lane.signal.cancel()
        pool.give_back(pooled)
        room.runtimes[1].gate.clear()
        async with trio.open_nursery() as nursery:

            async def open_later() -> None:
                await trio.sleep(0.3)  # longer than a cancelled request may wait
                room.runtimes[1].gate.set()

            nursery.start_soon(open_later)
            assert len(await use(pool)) == 2


async def test_what_a_lane_raises_comes_out_as_it_is() -> None:
    async with running_room(1) as room, kept_pool(room, 1) as pool:
        await serving(pool)
        pooled = pool.lease()

        def broken(lane: PooledLane) -> None:
            raise lost(lane.lane.node.index)

        with pytest.raises(StageFailureError, match="stage-0 is lost"):
            await in_lane_thread(pooled, broken)
        pool.give_back(pooled)


def test_wire_ids_are_never_zero_and_fit_64_bits() -> None:
    ids = {wire_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(0 < number < 2**64 for number in ids)
