"""The log of deployments: numbered, bounded, resumed from any number."""

from __future__ import annotations

import trio
import trio.testing

from skippyd.coordination.rollout_events import KEPT_EVENTS, EventLog, RolloutEvent
from skippyd.core.coordinator.campaign_effects import Step


def added(log: EventLog, message: str, model: str = "m") -> RolloutEvent:
    return log.add(Step.PLAN, message, model_id=model, at_unix_ms=5)


def test_events_are_numbered_and_found_by_number_and_model() -> None:
    log = EventLog()
    added(log, "one")
    added(log, "two", "other")
    added(log, "three")
    assert [e.sequence for e in log.since(0)] == [1, 2, 3]
    assert [e.message for e in log.since(1)] == ["two", "three"]
    assert [e.message for e in log.since(0, "m")] == ["one", "three"]
    assert log.last_sequence == 3


def test_only_the_newest_are_kept_and_the_gap_can_be_seen() -> None:
    log = EventLog()
    for number in range(KEPT_EVENTS + 10):
        added(log, str(number))
    kept = log.since(3)
    assert len(kept) == KEPT_EVENTS
    assert kept[0].sequence == 11


def test_progress_travels_in_bytes() -> None:
    event = EventLog().add(
        Step.LOAD, "x", model_id="m", at_unix_ms=5, stage_id="stage-1", progress=(3, 9)
    )
    assert (event.stage_id, event.done, event.total) == ("stage-1", 3, 9)


async def test_a_watcher_resumes_where_it_was_and_waits_for_more() -> None:
    log = EventLog()
    added(log, "one")
    added(log, "two")
    assert [e.message for e in await log.newer(1)] == ["two"]
    got: list[RolloutEvent] = []

    async def watch() -> None:
        got.extend(await log.newer(2, "m"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await trio.testing.wait_all_tasks_blocked()
        added(log, "of another model", "other")
        await trio.testing.wait_all_tasks_blocked()
        assert got == []
        added(log, "three")
    assert [e.message for e in got] == ["three"]
