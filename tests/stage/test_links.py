"""What comes back from another stage: replies, failures, the end."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from skippyd.core.wire.encode import encode_reply
from skippyd.core.wire.replies import Failure, ack, predicted_token
from skippyd.core.wire.requests import stop
from skippyd.errors import FailureCode, StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.net.tcp import prepare
from skippyd.stage.links import ReplyLink
from skippyd.stage.waiting import LaneSignal


if TYPE_CHECKING:
    from collections.abc import Iterator

STOP = stop(request_id=RequestId(1), session_id=SessionId(2))


@pytest.fixture
def ends() -> Iterator[tuple[ReplyLink, socket.socket]]:
    """A link, and the other stage's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _address = listener.accept()
    prepare(ours, io_timeout_s=2.0)
    link = ReplyLink(ours, 1, peer_name="stage-1")
    with theirs:
        yield link, theirs
    link.close()


def test_replies_are_taken_one_by_one(ends: tuple[ReplyLink, socket.socket]) -> None:
    link, theirs = ends
    theirs.sendall(encode_reply(ack()) + encode_reply(predicted_token(7)))
    assert link.wait_reply(1.0, "it").tokens == ()
    assert link.wait_reply(1.0, "it").tokens == (7,)
    assert link.next_buffered() is None


def test_a_reply_may_come_in_pieces(ends: tuple[ReplyLink, socket.socket]) -> None:
    link, theirs = ends
    whole = encode_reply(predicted_token(7))
    theirs.sendall(whole[:10])
    with pytest.raises(StageFailureError, match=r"did not answer it within 0\.05 s"):
        link.wait_reply(0.05, "it")
    theirs.sendall(whole[10:])
    assert link.wait_reply(1.0, "it").tokens == (7,)


def test_a_failure_reply_is_raised_as_it_was_sent(
    ends: tuple[ReplyLink, socket.socket],
) -> None:
    link, theirs = ends
    theirs.sendall(encode_reply(Failure(FailureCode.KV_FULL, 2, "no room")))
    with pytest.raises(StageFailureError, match="no room") as caught:
        link.wait_reply(1.0, "it")
    assert (caught.value.code, caught.value.stage_index) == (FailureCode.KV_FULL, 2)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"", "stage-1 is lost: it closed the connection; see its log"),
        (encode_reply(ack())[:5], "closed the connection in the middle of a reply"),
    ],
)
def test_the_end_of_a_connection_names_the_stage(
    ends: tuple[ReplyLink, socket.socket], sent: bytes, words: str
) -> None:
    link, theirs = ends
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(StageFailureError, match=words) as caught:
        link.wait_reply(1.0, "it")
    assert caught.value.code is FailureCode.STAGE_LOST


def test_what_is_no_reply_is_a_broken_protocol(
    ends: tuple[ReplyLink, socket.socket],
) -> None:
    link, theirs = ends
    theirs.sendall(b"\xff" * 300)
    with pytest.raises(StageFailureError, match="stage-1 broke the protocol") as caught:
        link.wait_reply(1.0, "it")
    assert caught.value.code is FailureCode.PROTOCOL


def test_a_write_that_fails_tells_the_last_words_of_the_stage(
    ends: tuple[ReplyLink, socket.socket],
) -> None:
    link, theirs = ends
    theirs.sendall(encode_reply(Failure(FailureCode.FENCED, 1, "another run")))
    link.interrupt()
    with pytest.raises(StageFailureError, match="another run") as caught:
        link.send(STOP)
    assert caught.value.code is FailureCode.FENCED


def test_a_write_that_fails_without_words_is_a_lost_stage(
    ends: tuple[ReplyLink, socket.socket],
) -> None:
    link, _theirs = ends
    link.interrupt()
    with pytest.raises(StageFailureError, match="stage-1 is lost") as caught:
        link.send(STOP)
    assert caught.value.code is FailureCode.STAGE_LOST


def test_a_cancelled_lane_does_not_wait_its_time_out(
    ends: tuple[ReplyLink, socket.socket],
) -> None:
    signal = LaneSignal(0, cancel_s=0.01)
    signal.cancel()
    with pytest.raises(StageFailureError, match="cancelled"):
        ends[0].wait_reply(30.0, "it", signal)
    signal.close()
