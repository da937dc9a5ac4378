"""The test harness keeps its own promises: it sees hangs and what is left over."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
import trio

from support.leaks import Census
from support.watchdog import Watchdog, WatchdogBarkError


@pytest.mark.slow
def test_a_hanging_test_fails_with_all_stacks(
    capfd: pytest.CaptureFixture[str],
) -> None:
    release = threading.Event()
    hanging = threading.Thread(target=release.wait, name="hanging")
    hanging.start()
    try:
        with (
            pytest.raises(WatchdogBarkError, match=r"did not end within 0\.3 s"),
            Watchdog(0.3, 2),
        ):
            release.wait(60)
    finally:
        release.set()
        hanging.join()
    stacks = capfd.readouterr().err
    assert stacks.count("most recent call first") >= 2
    assert "test_a_hanging_test_fails_with_all_stacks" in stacks


@pytest.mark.slow
def test_hanging_tasks_are_cancelled_and_cleaned_up() -> None:
    cleaned_up = []

    async def hang() -> None:
        try:
            await trio.sleep_forever()
        finally:
            cleaned_up.append("hang")

    async def hang_in_company() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hang)

    with pytest.raises(WatchdogBarkError), Watchdog(0.3, 2):
        trio.run(hang_in_company)
    assert cleaned_up == ["hang"]
    assert trio.run(trio.sleep, 0) is None


def test_a_test_in_time_is_left_alone() -> None:
    with Watchdog(60, 2):
        pass
    assert threading.Event().wait(0) is False


def test_what_a_test_leaves_behind_is_named() -> None:
    before = Census.take()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="forgotten")
    thread.start()
    reader, writer = os.pipe()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    left = before.left_over(within_s=0.0)
    release.set()
    thread.join()
    os.close(reader)
    os.close(writer)
    child.communicate(b"\n")
    assert any("forgotten" in line for line in left)
    assert any("pipe:" in line for line in left)
    assert f"child process {child.pid}" in left
    assert before.left_over(within_s=5.0) == []
