"""What lanes and sessions of a stage are at, as values that go to the parent process.

Bounded on the way out and checked on the way in: a stage process is a program of ours,
but what it says is shown to people and must not grow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import attrs


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

MOST_ROWS = 128
"""Of lanes and of sessions: two lists of so many stay below one line's limit."""

IDLE, OPEN, PREFILL, DECODE = "idle", "open", "prefill", "decode"
STATES = frozenset({IDLE, OPEN, PREFILL, DECODE})


@attrs.frozen(kw_only=True)
class LaneActivity:
    """One lane.

    Args:
        lane_id: Its number in its stage; given again when it has ended.
        state: idle, or what its newest session is at.
        session_id: The session used last of those it has.
        request_id: Whose session that is.
        token_count: Positions that its sessions hold.
        age_ms: How long it has been in this state.
        working_ms: How long it has been at one message; None between messages.
        is_overdue: Whether that is longer than any deadline explains.
    """

    lane_id: int
    state: str
    session_id: int | None = None
    request_id: int | None = None
    token_count: int = 0
    age_ms: int = 0
    working_ms: int | None = None
    is_overdue: bool = False


@attrs.frozen(kw_only=True)
class SessionActivity:
    """One session.

    Args:
        state: open (nothing computed yet), prefill or decode.
        token_count: Positions it holds.
        age_ms: Since it was opened.
        idle_ms: Since its last message was done.
    """

    session_id: int
    request_id: int
    lane_id: int
    state: str
    token_count: int
    age_ms: int
    idle_ms: int


@attrs.frozen(kw_only=True)
class StageActivity:
    """All lanes and sessions of a stage at one moment.

    Args:
        left_off: Rows that were too many to be told.
    """

    lanes: tuple[LaneActivity, ...] = ()
    sessions: tuple[SessionActivity, ...] = ()
    left_off: int = 0


def activity_fields(activity: StageActivity) -> dict[str, object]:
    """What goes to the parent; ids are 64 bits and travel as texts."""
    lanes, sessions = activity.lanes[:MOST_ROWS], activity.sessions[:MOST_ROWS]
    left_off = len(activity.lanes) + len(activity.sessions) - len(lanes) - len(sessions)
    return {
        "lanes": [_row(lane) for lane in lanes],
        "sessions": [_row(session) for session in sessions],
        "left_off": activity.left_off + left_off,
    }


def parse_activity(fields: Mapping[str, object]) -> StageActivity:
    """Read what a stage process said.

    Raises:
        ValueError: It is not what `activity_fields` makes.
    """
    return StageActivity(
        lanes=_rows(fields.get("lanes"), _lane),
        sessions=_rows(fields.get("sessions"), _session),
        left_off=_count(fields, "left_off"),
    )


def _row(row: LaneActivity | SessionActivity) -> dict[str, object]:
    fields: dict[str, object] = attrs.asdict(row)
    for name in ("session_id", "request_id"):
        fields[name] = None if fields[name] is None else str(fields[name])
    return fields


def _rows(rows: object, parse: Callable[[Mapping[str, object]], T]) -> tuple[T, ...]:
    if not isinstance(rows, list) or len(rows) > MOST_ROWS:
        raise ValueError(f"no list of at most {MOST_ROWS} rows")
    return tuple(parse(row) for row in rows if isinstance(row, dict))


def _lane(row: Mapping[str, object]) -> LaneActivity:
    working = row.get("working_ms")
    return LaneActivity(
        lane_id=_count(row, "lane_id"),
        state=_state(row),
        session_id=_identity(row.get("session_id")),
        request_id=_identity(row.get("request_id")),
        token_count=_count(row, "token_count"),
        age_ms=_count(row, "age_ms"),
        working_ms=None if working is None else _count(row, "working_ms"),
        is_overdue=row.get("is_overdue") is True,
    )


def _session(row: Mapping[str, object]) -> SessionActivity:
    return SessionActivity(
        session_id=_identity(row.get("session_id")) or 0,
        request_id=_identity(row.get("request_id")) or 0,
        lane_id=_count(row, "lane_id"),
        state=_state(row),
        token_count=_count(row, "token_count"),
        age_ms=_count(row, "age_ms"),
        idle_ms=_count(row, "idle_ms"),
    )


def _count(row: Mapping[str, object], name: str) -> int:
    value = row.get(name)
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{name} is {value!r}, which is no count")
    return value


def _state(row: Mapping[str, object]) -> str:
    state = row.get("state")
    if not isinstance(state, str) or state not in STATES:
        raise ValueError(f"no state: {state!r}")
    return state


def _identity(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > len(str(1 << 64)):
        raise ValueError(f"no id: {value!r}")
    return int(value)
