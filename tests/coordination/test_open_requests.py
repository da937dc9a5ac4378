"""Requests that wait: numbered, bounded, answered exactly once or told why not."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from skippyd.coordination.open_requests import (
    MAX_OPEN_REQUESTS,
    OpenRequests,
    StageSideBusyError,
    StageSideClosedError,
)
from skippyd.core.coordinator.messages import Origin, ProbeClaim, StageStopped
from skippyd.errors import ExitCode
from support.claims import claim, load_of


REQUEST = ProbeClaim(claim())
REPLY = StageStopped(load_of(claim()).stage)


async def test_each_request_gets_its_own_answer() -> None:
    requests = OpenRequests()
    first = requests.open(REQUEST, Origin.NETWORK, None)
    second = requests.open(REQUEST, Origin.ADMIN, None)
    other = StageStopped(load_of(claim(11)).stage)

    requests.answer(second.request_id, other)
    requests.answer(first.request_id, REPLY)

    assert (await first.reply(), await second.reply()) == (REPLY, other)


async def test_no_request_is_answered_twice() -> None:
    requests = OpenRequests()
    opened = requests.open(REQUEST, Origin.NETWORK, None)
    requests.answer(opened.request_id, REPLY)

    with pytest.raises(KeyError):
        requests.answer(opened.request_id, REPLY)


async def test_too_many_are_told_to_come_back() -> None:
    requests = OpenRequests()
    last = requests.open(REQUEST, Origin.NETWORK, None)
    for _ in range(MAX_OPEN_REQUESTS - 1):
        requests.check_room()
        requests.open(REQUEST, Origin.NETWORK, None)

    with pytest.raises(StageSideBusyError, match="ask again later") as busy:
        requests.check_room()
    requests.answer(last.request_id, REPLY)
    requests.check_room()

    assert busy.value.exit_code is ExitCode.TRY_AGAIN


async def test_whoever_waits_is_told_that_the_node_stops() -> None:
    requests = OpenRequests()
    opened = requests.open(REQUEST, Origin.NETWORK, None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_closed, opened.reply)
        await wait_all_tasks_blocked()
        requests.close()

    with pytest.raises(StageSideClosedError, match="is stopping"):
        requests.check_room()


async def expect_closed(reply: object) -> None:
    assert callable(reply)
    with pytest.raises(StageSideClosedError, match="before it could answer"):
        await reply()


def test_a_load_that_starts_is_found_among_the_open_requests() -> None:
    requests = OpenRequests()
    load = load_of(claim())
    requests.open(REQUEST, Origin.NETWORK, None)
    opened = requests.open(load, Origin.ADMIN, None)

    assert requests.asking_for(load_of(claim())) is opened
    assert requests.settings(opened.request_id) is None
