"""From a stage process to its daemon: what it may say, and how much."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from skippyd.daemon.supervisor import EVENT_MAX_BYTES
from skippyd.stage.activity import (
    MOST_ROWS,
    LaneActivity,
    SessionActivity,
    StageActivity,
    activity_fields,
    parse_activity,
)


BIG = (1 << 64) - 1
LANE = LaneActivity(
    lane_id=3,
    state="prefill",
    session_id=BIG,
    request_id=BIG - 1,
    token_count=40_000,
    age_ms=1 << 40,
    working_ms=1 << 40,
    is_overdue=True,
)
SESSION = SessionActivity(
    session_id=BIG,
    request_id=BIG - 1,
    lane_id=3,
    state="decode",
    token_count=40_000,
    age_ms=1 << 40,
    idle_ms=1 << 40,
)


def through_json(activity: StageActivity) -> StageActivity:
    return parse_activity(json.loads(json.dumps(activity_fields(activity))))


def test_what_was_said_is_what_is_heard() -> None:
    idle = LaneActivity(lane_id=0, state="idle")
    said = StageActivity(lanes=(LANE, idle), sessions=(SESSION,), left_off=2)
    assert through_json(said) == said


def test_ids_travel_as_texts() -> None:
    fields: dict[str, Any] = activity_fields(StageActivity(lanes=(LANE,)))
    assert fields["lanes"][0]["session_id"] == str(BIG)


def test_what_is_too_much_is_counted_and_a_full_event_fits_a_line() -> None:
    many = StageActivity(lanes=(LANE,) * 200, sessions=(SESSION,) * 300)
    assert len(json.dumps(activity_fields(many))) < EVENT_MAX_BYTES
    heard = through_json(many)
    assert (len(heard.lanes), len(heard.sessions)) == (MOST_ROWS, MOST_ROWS)
    assert heard.left_off == 500 - 2 * MOST_ROWS


@pytest.mark.parametrize(
    "change",
    [
        {"lanes": None},
        {"lanes": [{}] * (MOST_ROWS + 1)},
        {"sessions": [{"state": "odd"}]},
        {"left_off": -1},
        {"left_off": True},
        {"lanes": [attrs.asdict(LANE)]},
        {"lanes": [{"lane_id": 0, "state": "idle", "session_id": "9" * 40}]},
        {"lanes": [{"lane_id": 0, "state": ["idle"]}]},
        {"lanes": [{"lane_id": 1 << 70, "state": "idle"}]},
    ],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no "):
        parse_activity(activity_fields(StageActivity()) | change)
