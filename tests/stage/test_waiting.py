"""A lane waits in one place, and every word from outside reaches it there."""

from __future__ import annotations

import math
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from skippyd.errors import FailureCode, StageFailureError
from skippyd.stage.waiting import (
    LaneSignal,
    PlainWaiter,
    WakeDescriptor,
    wait_readable,
)


if TYPE_CHECKING:
    from collections.abc import Iterator

SOON = 0.02


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def signal() -> Iterator[LaneSignal]:
    """A lane's signal that gives a cancelled request 20 ms."""
    signal = LaneSignal(2, cancel_s=SOON)
    yield signal
    signal.close()


def ends_from_another_thread(signal: LaneSignal, word: str) -> StageFailureError:
    """The failure of an endless wait that another thread ends."""
    speaker = threading.Timer(SOON, getattr(signal, word))
    speaker.start()
    with pytest.raises(StageFailureError) as caught:
        wait_for_ever(signal)
    speaker.join()
    return caught.value


def wait_for_ever(signal: LaneSignal) -> None:
    while True:
        signal.wait([], math.inf)


def test_what_is_readable_is_told(
    signal: LaneSignal, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    theirs.send(b"x")
    assert signal.wait([ours], math.inf) == [ours.fileno()]
    assert PlainWaiter().wait([ours], time.monotonic()) == [ours.fileno()]
    assert wait_readable([ours], None) == [ours.fileno()]


def test_a_wait_ends_empty_at_its_deadline(
    signal: LaneSignal, pair: tuple[socket.socket, socket.socket]
) -> None:
    until = time.monotonic() + SOON
    assert signal.wait([pair[0]], until) == []
    assert time.monotonic() >= until
    assert PlainWaiter().wait([pair[0]], time.monotonic() - 1) == []


def test_an_interrupt_ends_an_endless_wait_and_every_later_one(
    signal: LaneSignal,
) -> None:
    failure = ends_from_another_thread(signal, "interrupt")
    assert failure.code is FailureCode.CANCELLED
    assert failure.stage_index == 2
    with pytest.raises(StageFailureError, match="is stopping"):
        signal.wait([], math.inf)


def test_a_cancellation_shortens_a_wait_to_what_is_left(signal: LaneSignal) -> None:
    began = time.monotonic()
    failure = ends_from_another_thread(signal, "cancel")
    assert failure.code is FailureCode.CANCELLED
    assert "0.02 s" in failure.message
    assert time.monotonic() - began < 2


def test_a_cancelled_wait_still_takes_what_comes_in_time(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    signal = LaneSignal(0, cancel_s=5.0)
    signal.cancel()
    pair[1].send(b"x")
    readable: list[int] = []
    while not readable:
        readable = signal.wait([pair[0]], math.inf)
    assert readable == [pair[0].fileno()]
    signal.close()


def test_the_next_request_does_not_inherit_a_cancellation(signal: LaneSignal) -> None:
    signal.cancel()
    signal.renew()
    until = time.monotonic() + 2 * SOON
    while time.monotonic() < until:
        assert signal.wait([], until) == []


def test_a_poke_lets_the_thread_look_again(signal: LaneSignal) -> None:
    signal.poke()
    began = time.monotonic()
    assert signal.wait([], began + 10) == []
    assert time.monotonic() - began < 5


def test_a_late_word_to_a_closed_lane_touches_no_descriptor(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """The number of the closed descriptor soon belongs to something else."""
    wake = WakeDescriptor()
    number = wake.fileno()
    wake.close()
    wake.close()
    reused = pair[0].dup()
    assert reused.fileno() == number
    wake.wake()
    assert wait_readable([pair[1]], 0) == []
    reused.close()


def test_an_idle_wait_costs_no_processor_time(signal: LaneSignal) -> None:
    used = time.thread_time()
    signal.wait([], time.monotonic() + 0.1)
    assert time.thread_time() - used < 0.02


def test_a_spinning_lane_sees_bytes_and_sleeps_afterwards(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    signal = LaneSignal(0, cancel_s=SOON, spin_us=10_000)
    used = time.thread_time()
    assert signal.wait([pair[0]], time.monotonic() + 0.1) == []
    assert time.thread_time() - used < 0.05
    pair[1].send(b"x")
    assert signal.wait([pair[0]], math.inf) == [pair[0].fileno()]
    signal.close()
