"""What a lane notes of itself, seen from another thread."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.wire import requests
from skippyd.errors import StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.runtime.interface import StepResult
from skippyd.stage.lane_board import LaneBoard
from skippyd.stage.span_outbox import SpanOutbox
from support.scripted_runtime import defect
from support.stage_room import becomes, blocking, driver_on, running_room


if TYPE_CHECKING:
    from skippyd.core.telemetry.span import Span
    from skippyd.core.wire.messages import StageMessage
    from skippyd.stage.node import StageNode


def board_of(overdue_s: float = 60.0) -> LaneBoard:
    return LaneBoard(SpanOutbox(), {Attribute.STAGE_INDEX: 1}, overdue_s)


def decode(session: int) -> StageMessage:
    return requests.decode(
        request_id=RequestId(9),
        session_id=SessionId(session),
        pos_start=4,
        token=3,
        prompt_token_count=4,
        decode_step=0,
    )


def told(board: LaneBoard) -> list[tuple[str, int, int]]:
    """State, session and positions of each session that a board shows."""
    return [
        (session.state, session.session_id, session.token_count)
        for session in board.activity().sessions
    ]


def is_idle(board: LaneBoard) -> bool:
    """Whether its only lane has no session and says so."""
    (lane,) = board.activity().lanes
    return not told(board) and lane.state == "idle"


async def span_of(node: StageNode) -> Span:
    """The only span that a stage leaves, once it has left it."""
    spans: list[Span] = []

    def has_come() -> bool:
        spans.extend(node.spans.take().spans)
        return bool(spans)

    await becomes(has_come, "the span is there")
    (span,) = spans
    return span


async def test_a_lane_tells_its_session_from_its_first_chunk_to_its_stop() -> None:
    async with running_room(2) as room:
        driver = driver_on(await room.lane())
        boards = [node.board for node in room.nodes]
        (idle,) = boards[0].activity().lanes
        assert (idle.state, idle.session_id, idle.working_ms) == ("idle", None, None)

        await blocking(lambda: driver.prefill([1, 2, 3, 4, 5]))
        await blocking(driver.drain)
        (lane,) = boards[0].activity().lanes
        assert (lane.state, lane.token_count) == ("prefill", 5)
        assert (lane.session_id, lane.request_id) == (
            driver.session_id,
            driver.request_id,
        )

        await blocking(lambda: driver.configure(None))
        await blocking(lambda: driver.decode(6))
        # A stage notes what it did when it has answered.
        shown = [("decode", driver.session_id, 6)]
        for board in boards:
            await becomes(lambda board=board: told(board) == shown, "decoding is shown")  # type: ignore[misc]

        await blocking(lambda: driver.trim(2))
        shown = [("decode", driver.session_id, 2)]
        for board in boards:
            await becomes(lambda board=board: told(board) == shown, "the trim is shown")  # type: ignore[misc]
        await blocking(driver.stop)
        for board in boards:
            await becomes(lambda board=board: is_idle(board), "the end is shown")  # type: ignore[misc]


async def test_an_ended_session_leaves_a_span_of_its_waits_on_every_stage() -> None:
    async with running_room(2) as room:
        driver = driver_on(await room.lane())
        await blocking(lambda: driver.prefill([1, 2]))
        await blocking(driver.stop)
        for node in room.nodes:
            span = await span_of(node)
            assert span.name is SpanName.BINARY_SESSION_STOP
            assert span.attributes[Attribute.STAGE_INDEX] == node.index
            assert span.attributes[Attribute.STEPS] == 1
            assert span.number(Attribute.LOCK_WAIT_MS) is not None


async def test_a_failed_step_leaves_no_lane_at_work() -> None:
    async with running_room(1) as room:
        lane = await room.lane()
        room.runtimes[0].failures.append(defect())
        with pytest.raises(StageFailureError):
            await blocking(lambda: driver_on(lane).prefill([1]))
        (seen,) = room.nodes[0].board.activity().lanes
        assert seen.working_ms is None
        await room.close(lane)
        assert room.nodes[0].board.activity().lanes == ()


def test_waits_and_work_add_up_and_a_session_that_computed_nothing_is_no_news() -> None:
    board = board_of()
    seat = board.sit()
    for _ in range(2):
        seat.begin(decode(7))
        seat.computed(decode(7), StepResult(wait_ns=2_000_000, compute_ns=500_000))
        seat.done(decode(7))
    seat.begin(decode(8))
    board.leave(seat)
    (span,) = board.outbox.take().spans
    assert span.attributes == {
        Attribute.STAGE_INDEX: 1,
        Attribute.LOCK_WAIT_MS: 4.0,
        Attribute.LOCK_HOLD_MS: 1.0,
        Attribute.STEPS: 2,
    }


def test_a_lane_at_one_message_for_too_long_is_overdue() -> None:
    board = board_of(overdue_s=0.0)
    seat = board.sit()
    seat.begin(decode(7))
    while time.monotonic_ns() - seat.working_since_ns < 1_000_000:
        pass
    (lane,) = board.activity().lanes
    assert (lane.state, lane.is_overdue) == ("open", True)
    seat.done(decode(7))
    (lane,) = board.activity().lanes
    assert (lane.is_overdue, lane.working_ms) == (False, None)


def test_numbers_of_lanes_are_given_again() -> None:
    board = board_of()
    first, second = board.sit(), board.sit()
    board.leave(first)
    assert (second.lane_id, board.sit().lane_id, len(board)) == (1, 0, 2)


def test_a_lane_with_two_sessions_shows_the_one_used_last() -> None:
    board = board_of()
    seat = board.sit()
    for session in (7, 8, 7):
        seat.begin(decode(session))
        seat.computed(decode(session), StepResult())
        seat.done(decode(session))
    (lane,) = board.activity().lanes
    assert (lane.session_id, lane.token_count) == (7, 10)
    seat.begin(stop := requests.stop(request_id=RequestId(9), session_id=SessionId(7)))
    seat.done(stop)
    (lane,) = board.activity().lanes
    assert (lane.state, lane.session_id) == ("open", 8)
