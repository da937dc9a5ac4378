"""Where each lane notes what it is at, for people who look from another thread.

The lane's own thread writes plain attributes, a few for each message and without a
lock; whoever reads may see a lane between two of them. Sessions are counted by their
messages, so nobody waits for the engine to tell what it holds.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.telemetry.names import Attribute, SpanName
from skippyd.core.telemetry.span import NS_PER_MS, span
from skippyd.core.wire.kinds import MessageKind
from skippyd.stage.activity import (
    DECODE,
    IDLE,
    OPEN,
    PREFILL,
    LaneActivity,
    SessionActivity,
    StageActivity,
)


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.wire.messages import StageMessage
    from skippyd.runtime.interface import StepResult
    from skippyd.stage.span_outbox import SpanOutbox

WORK = {
    MessageKind.PREFILL_EMBD: PREFILL,
    MessageKind.PREFILL_FINAL_EMBD: PREFILL,
    MessageKind.DECODE_EMBD: DECODE,
}


@attrs.define(eq=False)
class SeatedSession:
    """One session of a lane, as its messages tell."""

    session_id: int
    request_id: int
    opened_ns: int
    state: str = OPEN
    used_ns: int = 0
    token_count: int = 0
    steps: int = 0
    wait_ns: int = 0
    compute_ns: int = 0


@attrs.define(eq=False)
class LaneSeat:
    """One lane's place on the board; written by its thread alone."""

    lane_id: int
    ended: Callable[[SeatedSession], None]
    since_ns: int = attrs.Factory(time.monotonic_ns)
    state: str = IDLE
    working_since_ns: int = 0
    sessions: dict[int, SeatedSession] = attrs.Factory(dict)

    def begin(self, message: StageMessage) -> None:
        """Note that a message is worked on, and whose session it is about."""
        self.working_since_ns = now_ns = time.monotonic_ns()
        if message.session_id not in self.sessions:
            session = SeatedSession(message.session_id, message.request_id, now_ns)
            self.sessions[message.session_id] = session

    def computed(self, message: StageMessage, result: StepResult) -> None:
        """Note what a step cost and how far its session is now."""
        session = self.sessions[message.session_id]
        session.steps += 1
        session.wait_ns += result.wait_ns
        session.compute_ns += result.compute_ns
        session.token_count = message.pos_start + message.token_count

    def done(self, message: StageMessage) -> None:
        """Note that a message is done."""
        now_ns = time.monotonic_ns()
        session = self.sessions[message.session_id]
        session.used_ns = now_ns
        if (state := WORK.get(message.kind)) is not None:
            session.state = state
        elif message.kind is MessageKind.TRIM_SESSION:
            session.token_count = min(session.token_count, message.token_count)
        elif message.kind is MessageKind.STOP:
            self.ended(self.sessions.pop(message.session_id))
            state = OPEN if self.sessions else IDLE
        else:
            state = session.state
        if state is not None and state is not self.state:
            self.state, self.since_ns = state, now_ns
        self.working_since_ns = 0


@attrs.define(eq=False)
class LaneBoard:
    """The seats of one stage's lanes.

    Args:
        outbox: Takes a span of each session that has ended.
        attributes: What each of these spans says besides.
        overdue_s: A lane that is at one message for longer is overdue.
    """

    outbox: SpanOutbox
    attributes: dict[Attribute, str | int]
    overdue_s: float
    _seats: dict[int, LaneSeat] = attrs.Factory(dict)
    _lock: threading.Lock = attrs.Factory(threading.Lock)

    def __len__(self) -> int:
        return len(self._seats)

    def sit(self) -> LaneSeat:
        """A place for a lane that opens; from any thread."""
        with self._lock:
            lane_id = 0
            while lane_id in self._seats:
                lane_id += 1
            seat = self._seats[lane_id] = LaneSeat(lane_id, self.tell_ended)
        return seat

    def leave(self, seat: LaneSeat) -> None:
        """Give a place back; the sessions it had have ended."""
        with self._lock:
            self._seats.pop(seat.lane_id, None)
        for session in seat.sessions.values():
            self.tell_ended(session)

    def tell_ended(self, session: SeatedSession) -> None:
        """Leave a span about a session; one that computed nothing is no news."""
        if not session.steps:
            return
        lasted_ns = time.monotonic_ns() - session.opened_ns
        wall_ns = time.time_ns()
        self.outbox.record(
            span(
                SpanName.BINARY_SESSION_STOP,
                wall_ns - lasted_ns,
                wall_ns,
                {
                    **self.attributes,
                    Attribute.LOCK_WAIT_MS: session.wait_ns / NS_PER_MS,
                    Attribute.LOCK_HOLD_MS: session.compute_ns / NS_PER_MS,
                    Attribute.STEPS: session.steps,
                },
            )
        )

    def activity(self) -> StageActivity:
        """All lanes and sessions now; from any thread."""
        with self._lock:
            seats = sorted(self._seats.values(), key=lambda seat: seat.lane_id)
        now_ns = time.monotonic_ns()
        lanes, sessions = [], []
        for seat in seats:
            seated = list(seat.sessions.values())
            lanes.append(self._lane(seat, seated, now_ns))
            sessions += [_session(seat, session, now_ns) for session in seated]
        return StageActivity(lanes=tuple(lanes), sessions=tuple(sessions))

    def _lane(
        self, seat: LaneSeat, seated: list[SeatedSession], now_ns: int
    ) -> LaneActivity:
        newest = max(seated, key=lambda each: each.used_ns or now_ns, default=None)
        since_ns = seat.working_since_ns
        working_ms = _ms(now_ns - since_ns) if since_ns else None
        return LaneActivity(
            lane_id=seat.lane_id,
            state=seat.state if newest is None or seat.state is not IDLE else OPEN,
            session_id=None if newest is None else newest.session_id,
            request_id=None if newest is None else newest.request_id,
            token_count=sum(session.token_count for session in seated),
            age_ms=_ms(now_ns - seat.since_ns),
            working_ms=working_ms,
            is_overdue=working_ms is not None and working_ms > self.overdue_s * 1000,
        )


def _session(seat: LaneSeat, session: SeatedSession, now_ns: int) -> SessionActivity:
    return SessionActivity(
        session_id=session.session_id,
        request_id=session.request_id,
        lane_id=seat.lane_id,
        state=session.state,
        token_count=session.token_count,
        age_ms=_ms(now_ns - session.opened_ns),
        idle_ms=0 if seat.working_since_ns else _ms(now_ns - session.used_ns),
    )


def _ms(nanoseconds: int) -> int:
    return max(0, nanoseconds) // NS_PER_MS
