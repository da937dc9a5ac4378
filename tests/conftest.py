"""What every test may use: profiles of hypothesis, the model, watchdog, leak check."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from skippyd.model.fetching import fetch_model
from support.leaks import Census
from support.watchdog import Watchdog


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROCESS_TEST_DEADLINE_S = 60.0
WATCHDOG_STDERR = pytest.StashKey[int]()

# No deadline for an example: the machines that run this are shared.
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile(
    "ci", deadline=None, max_examples=100, derandomize=True, print_blob=True
)
settings.register_profile(
    "soak",
    deadline=None,
    max_examples=5000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("SKIPPY_HYPOTHESIS_PROFILE", "dev"))


def pytest_configure(config: pytest.Config) -> None:
    """Hear Ctrl-C, and keep a way to the real standard error for a watchdog.

    A shell starts what runs in the background deaf to SIGINT, and every child inherits
    that: the tests that press Ctrl-C would wait for ever.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        config.stash[WATCHDOG_STDERR] = os.dup(2)
        return
    with capture.global_and_fixture_disabled():
        config.stash[WATCHDOG_STDERR] = os.dup(2)


def pytest_collection_finish() -> None:
    """Let the collector of garbage pass over what thousands of collected tests are.

    It runs before and after each test that looks for leaks: half a second a test.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close it again."""
    os.close(config.stash[WATCHDOG_STDERR])


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The real model of 30 layers, fetched the first time and verified."""
    return fetch_model()


@pytest.fixture(autouse=True)
def watchdog(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a watched test that hangs, with the stacks of all threads.

    Watched are tests marked `process` (60 s) and `watchdog(seconds)`.
    """
    seconds = _watched_seconds(request.node)
    if seconds is None:
        yield
        return
    with Watchdog(seconds, request.config.stash[WATCHDOG_STDERR]):
        yield


@pytest.fixture(autouse=True)
def no_leaks_of_process_tests(request: pytest.FixtureRequest) -> None:
    """A test marked `process` leaves descriptors, threads and children as they were."""
    if request.node.get_closest_marker("process") is not None:
        request.getfixturevalue("no_leaks")


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fail when descriptors, threads or children are left over after the test."""
    before = Census.take()
    yield
    left = before.left_over(within_s=5.0)
    assert not left, "left over after the test: " + ", ".join(left)


def _watched_seconds(item: pytest.Item) -> float | None:
    marker = item.get_closest_marker("watchdog")
    if marker is not None:
        return float(marker.args[0])
    is_process_test = item.get_closest_marker("process") is not None
    return PROCESS_TEST_DEADLINE_S if is_process_test else None
