"""Which connection carries whose predictions."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.core.wire.decode import ReplyParser
from skippyd.core.wire.replies import predicted_token
from skippyd.core.wire.requests import stop
from skippyd.errors import StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.stage.predictions import (
    OFFERS_MAX,
    PENDING_SINKS_MAX,
    OfferedReturn,
    ReturnSink,
    ReturnSinks,
    ReturnWaiters,
    flow_key,
)


if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = (1, 2)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_flow_is_a_request_of_a_session() -> None:
    message = stop(request_id=RequestId(1), session_id=SessionId(2))
    assert flow_key(message) == KEY


def test_a_sink_may_be_waited_for_from_another_connection(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sinks, sink = ReturnSinks(), ReturnSink(pair[0])
    binding = threading.Timer(0.02, sinks.bind, (KEY, sink))
    binding.start()
    assert sinks.wait(KEY, 5.0) is sink
    binding.join()
    assert sinks.wait((9, 9), 0.01) is None


@attrs.define(eq=False)
class LentRow:
    """Implements the part of `NextRow` that a sink uses."""

    input: bytearray = attrs.Factory(bytearray)
    descriptor: int = -1

    def make_ready(self) -> None:
        """See `NextRow.make_ready`."""

    def run(self, _token: int) -> None:
        """See `NextRow.run`."""

    def deliver(
        self, _head: bytearray, _token_at: tuple[int, int], descriptor: int = -1
    ) -> None:
        """See `NextRow.deliver`."""
        self.descriptor = descriptor

    def deliver_nowhere(self) -> None:
        """See `NextRow.deliver_nowhere`."""
        self.descriptor = -1


def test_a_row_answers_by_itself_until_its_flow_ends(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sinks, sink, row = ReturnSinks(), ReturnSink(pair[0]), LentRow()
    sinks.bind(KEY, sink)
    sink.lend(row)
    assert row.descriptor == pair[0].fileno()
    sinks.drop(KEY)
    assert row.descriptor == -1
    sinks.bind((3, 4), sink)
    sink.lend(row)
    assert row.descriptor == pair[0].fileno()
    sinks.drop_connection(sink)
    assert row.descriptor == -1
    sink.lend(row)
    assert row.descriptor == -1


def test_flows_that_share_a_connection_answer_one_after_the_other(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """A row does not wait for the lock, so none may answer by itself there."""
    sinks, sink, row = ReturnSinks(), ReturnSink(pair[0]), LentRow()
    sinks.bind(KEY, sink)
    sink.lend(row)
    sinks.bind((3, 4), sink)
    assert row.descriptor == -1
    sink.lend(row)
    assert row.descriptor == -1


def test_a_row_does_not_answer_on_a_connection_that_was_replaced(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sinks, row = ReturnSinks(), LentRow()
    older, newer = ReturnSink(pair[0]), ReturnSink(pair[1])
    sinks.bind(KEY, older)
    older.lend(row)
    sinks.bind(KEY, newer)
    assert row.descriptor == -1
    assert sinks.find(KEY) is newer


def test_the_newest_connection_of_a_flow_wins(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sinks = ReturnSinks()
    old, new = ReturnSink(pair[0]), ReturnSink(pair[1])
    sinks.bind(KEY, old)
    sinks.bind(KEY, new)
    assert sinks.find(KEY) is new
    sinks.drop_connection(old)
    assert sinks.find(KEY) is new
    sinks.drop_connection(new)
    assert len(sinks) == 0


def test_pending_sinks_are_bounded(pair: tuple[socket.socket, socket.socket]) -> None:
    sinks, sink = ReturnSinks(), ReturnSink(pair[0])
    for number in range(PENDING_SINKS_MAX):
        sinks.bind((number, 0), sink)
    with pytest.raises(StageFailureError, match="too many pending prediction return"):
        sinks.bind((PENDING_SINKS_MAX, 0), sink)
    sinks.bind((0, 0), sink)
    sinks.drop((0, 0))
    sinks.bind((PENDING_SINKS_MAX, 0), sink)
    assert len(sinks) == PENDING_SINKS_MAX


def test_sinks_that_a_lane_has_taken_are_pending_no_more(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    sinks, sink = ReturnSinks(), ReturnSink(pair[0])
    for number in range(2 * PENDING_SINKS_MAX):
        sinks.bind((number, 0), sink)
        assert sinks.wait((number, 0), 0.0) is sink
    sinks.drop((0, 0))
    sinks.drop_connection(sink)
    assert len(sinks) == 0


def test_a_sink_writes_a_reply(pair: tuple[socket.socket, socket.socket]) -> None:
    ReturnSink(pair[0]).send(predicted_token(5))
    parser = ReplyParser()
    parser.receive_data(pair[1].recv(4096))
    reply = parser.next_value()
    assert reply == predicted_token(5)


def test_an_offer_wakes_the_lane_that_waits_and_no_other(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    waiters, woken = ReturnWaiters(), list[str]()
    waiters.expect(KEY, lambda: woken.append("it"))
    assert not waiters.offer((9, 9), OfferedReturn(pair[0]))
    assert woken == []
    assert waiters.take(KEY) is None
    offered = OfferedReturn(pair[0], b"12")
    assert waiters.offer(KEY, offered)
    assert woken == ["it"]
    assert waiters.take(KEY) is offered
    assert waiters.take(KEY) is None


def test_an_offer_that_nobody_took_is_closed_with_the_wait(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    waiters = ReturnWaiters()
    waiters.expect(KEY, lambda: None)
    assert waiters.offer(KEY, OfferedReturn(pair[0]))
    waiters.forget(KEY)
    waiters.forget(KEY)
    assert pair[0].fileno() == -1
    assert len(waiters) == 0
    assert not waiters.offer(KEY, OfferedReturn(pair[1]))


def test_offers_to_one_lane_are_bounded(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    waiters = ReturnWaiters()
    waiters.expect(KEY, lambda: None)
    copies = [pair[0].dup() for _ in range(OFFERS_MAX)]
    assert all(waiters.offer(KEY, OfferedReturn(copy)) for copy in copies)
    assert not waiters.offer(KEY, OfferedReturn(pair[0]))
    waiters.forget(KEY)
