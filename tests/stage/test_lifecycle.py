"""The line to the parent: events up, words down, and the end of the parent."""

from __future__ import annotations

import json
import os
import socket
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.errors import UsageError
from skippyd.stage.lifecycle import LINE_MAX_BYTES, LifecycleChannel


if TYPE_CHECKING:
    from collections.abc import Iterator


class Line:
    """Both ends, and whether the stage was told to stop."""

    def __init__(self) -> None:
        self.parent, child = socket.socketpair()
        self.parent.settimeout(5.0)
        self.channel = LifecycleChannel(child.detach())
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1

    def events(self, count: int) -> list[dict[str, object]]:
        with self.parent.makefile("r") as lines:
            return [json.loads(lines.readline()) for _ in range(count)]

    async def serve(self) -> None:
        await self.channel.serve(
            status=lambda: [("status", {"lanes": 3})],
            glance=lambda: [("status", {}), ("activity", {"lanes": []})],
            stop=self.stop,
        )


@pytest.fixture
def line() -> Iterator[Line]:
    """A line."""
    line = Line()
    yield line
    line.parent.close()
    line.channel.close()


def test_events_are_lines_of_json(line: Line) -> None:
    line.channel.tell("loading", done=0.5)
    line.channel.tell("ready", pid=1)
    assert line.events(2) == [
        {"event": "loading", "done": 0.5},
        {"event": "ready", "pid": 1},
    ]


def test_a_parent_that_is_gone_is_no_error(line: Line) -> None:
    assert not line.channel.is_parent_gone
    line.parent.close()
    line.channel.tell("ready")
    assert line.channel.is_parent_gone


def test_a_word_that_waits_is_a_parent_that_lives(line: Line) -> None:
    line.parent.sendall(b"status\n")
    assert not line.channel.is_parent_gone


async def test_status_is_answered_until_told_to_stop(line: Line) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.serve)
        line.parent.sendall(b"status\nsta")
        assert await trio.to_thread.run_sync(partial(line.events, 1)) == [
            {"event": "status", "lanes": 3}
        ]
        assert line.stops == 0
        line.parent.sendall(b"tus\nstop\n")
    assert line.stops == 1


async def test_a_glance_is_answered_by_all_its_events(line: Line) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.serve)
        line.parent.sendall(b"glance\n")
        events = await trio.to_thread.run_sync(partial(line.events, 2))
        assert events == [{"event": "status"}, {"event": "activity", "lanes": []}]
        line.parent.sendall(b"stop\n")
    assert line.stops == 1


async def test_the_end_of_the_parent_is_a_word_to_stop(line: Line) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(line.serve)
        line.parent.close()
    assert line.stops == 1


async def test_a_parent_that_talks_without_end_is_not_kept(line: Line) -> None:
    def talk() -> None:
        line.parent.sendall(bytes(LINE_MAX_BYTES + 4096))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, talk)
        nursery.start_soon(line.serve)
    assert line.stops == 1


def test_a_descriptor_that_is_no_socket_is_refused() -> None:
    reading, writing = os.pipe()
    with pytest.raises(UsageError, match=f"--lifecycle-fd {reading} is no inherited"):
        LifecycleChannel(reading)
    os.close(reading)
    os.close(writing)
