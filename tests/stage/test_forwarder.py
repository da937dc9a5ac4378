"""The background writer keeps order, bounds what waits, and tells what went wrong."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from skippyd.core.wire.decode import MessageParser
from skippyd.core.wire.messages import forwarded
from skippyd.core.wire.requests import prefill
from skippyd.errors import FailureCode, StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.net.tcp import prepare
from skippyd.stage.forwarder import Forwarder
from skippyd.stage.links import ReplyLink
from skippyd.stage.waiting import LaneSignal


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.core.wire.messages import StageMessage

WIDTH = 16_384


def frame(position: int) -> StageMessage:
    """A frame of 256 KiB."""
    asked = prefill(
        request_id=RequestId(1),
        session_id=SessionId(2),
        pos_start=position,
        tokens=(1, 2, 3, 4),
        prompt_token_count=99,
    )
    rows = bytes(4 * 4 * WIDTH)
    return forwarded(asked, source_stage_index=0, activation=rows)


def fill(forwarder: Forwarder, count: int) -> None:
    for position in range(count):
        forwarder.put(frame(position))


class Ends:
    """A writer with a small socket buffer, and the end that reads."""

    def __init__(self, *, write_s: float) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            self.theirs, _address = listener.accept()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        self.theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        prepare(ours, io_timeout_s=write_s)
        self.link = ReplyLink(ours, 1, peer_name="stage-1")
        self.signal = LaneSignal(0, cancel_s=0.02)
        self.forwarder = Forwarder(self.link, 2, waiter=self.signal, write_s=write_s)

    def read(self, count: int) -> list[int]:
        """Positions of the next frames."""
        parser, positions = MessageParser(WIDTH), list[int]()
        while len(positions) < count:
            message = parser.next_value()
            if message is None:
                parser.receive_data(self.theirs.recv(65_536))
            else:
                positions.append(message.pos_start)
        return positions


@pytest.fixture
def ends() -> Iterator[Ends]:
    """Patient ends."""
    yield from opened(write_s=5.0)


@pytest.fixture
def hasty_ends() -> Iterator[Ends]:
    """Ends whose writes may stall for 50 ms."""
    yield from opened(write_s=0.05)


def opened(*, write_s: float) -> Iterator[Ends]:
    ends = Ends(write_s=write_s)
    yield ends
    ends.link.interrupt()
    ends.forwarder.close()
    ends.link.close()
    ends.theirs.close()
    ends.signal.close()


def test_frames_arrive_in_order_while_the_lane_goes_on(ends: Ends) -> None:
    reader = threading.Thread(target=lambda: seen.extend(ends.read(20)))
    seen: list[int] = []
    reader.start()
    for position in range(20):
        ends.forwarder.put(frame(position))
    ends.forwarder.flush()
    reader.join()
    assert seen == list(range(20))


def test_a_full_queue_holds_the_lane_until_the_peer_reads(ends: Ends) -> None:
    filling = threading.Thread(target=lambda: fill(ends.forwarder, 6))
    filling.start()
    filling.join(0.1)
    assert filling.is_alive(), "two frames of 256 KiB were to wait, not six"
    assert ends.read(6) == list(range(6))
    filling.join()


def test_a_peer_that_stops_reading_is_named(hasty_ends: Ends) -> None:
    with pytest.raises(StageFailureError, match="stage-1") as caught:
        fill(hasty_ends.forwarder, 50)
    assert caught.value.code in {FailureCode.STAGE_LOST, FailureCode.TIMEOUT}
    with pytest.raises(StageFailureError, match="stage-1"):
        hasty_ends.forwarder.flush()


def test_a_cancelled_lane_does_not_wait_for_a_stalled_peer(ends: Ends) -> None:
    ends.signal.cancel()
    with pytest.raises(StageFailureError, match="cancelled"):
        fill(ends.forwarder, 50)


def test_an_interrupted_writer_ends_at_once(ends: Ends) -> None:
    ends.forwarder.put(frame(0))
    ends.link.interrupt()
    ends.forwarder.close()
    assert [t.name for t in threading.enumerate() if t.name == "forwarder"] == []
