"""Credit, order and answers on the way to the next stage, against a scripted peer."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from skippyd.core.wire import requests
from skippyd.core.wire.decode import MessageParser
from skippyd.core.wire.encode import encode_reply
from skippyd.core.wire.replies import ack, predicted_token, prefill_compute
from skippyd.errors import FailureCode, StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.net.tcp import prepare
from skippyd.stage.downstream import DeferredStats, Downstream
from skippyd.stage.links import ReplyLink
from skippyd.stage.node import FlowControl, StageNode, StageTimings
from skippyd.stage.waiting import LaneSignal
from support.scripted_runtime import WIDTH, ScriptedRuntime
from support.stage_room import config_of


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.core.wire.messages import StageMessage

HASTY = StageTimings(reply=0.1, frame=1.0)
ROWS = memoryview(bytes(4 * WIDTH))
STOP = requests.stop(request_id=RequestId(1), session_id=SessionId(2))
DECODE = requests.decode(
    request_id=RequestId(1),
    session_id=SessionId(2),
    pos_start=9,
    token=1,
    prompt_token_count=9,
    decode_step=0,
)


def chunk(position: int) -> StageMessage:
    return requests.prefill(
        request_id=RequestId(1),
        session_id=SessionId(2),
        pos_start=position,
        tokens=(7,),
        prompt_token_count=9,
    )


class Boundary:
    """Stage 0's side, and the peer as stage 1."""

    def __init__(self, flow: FlowControl) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            self.peer, _address = listener.accept()
        prepare(ours, io_timeout_s=1.0)
        self.peer.settimeout(5.0)
        self.signal = LaneSignal(0, cancel_s=0.01)
        self.stats = DeferredStats()
        node = StageNode(
            config=config_of(0, [1, 2]),
            runtime=ScriptedRuntime(index=0, is_final=False),
            timings=HASTY,
            flow=flow,
        )
        self.downstream = Downstream(
            node=node,
            link=ReplyLink(ours, 1, peer_name="stage-1"),
            signal=self.signal,
            stats=self.stats,
        )
        self._parser = MessageParser(WIDTH)

    def answer(self, *replies: bytes) -> None:
        self.peer.sendall(b"".join(replies))

    def next_kinds(self, count: int) -> list[str]:
        kinds: list[str] = []
        while len(kinds) < count:
            message = self._parser.next_value()
            if message is None:
                self._parser.receive_data(self.peer.recv(65_536))
            else:
                kinds.append(message.kind.name)
        return kinds


@pytest.fixture(params=[True, False], ids=["in the background", "in step"])
def boundary(request: pytest.FixtureRequest) -> Iterator[Boundary]:
    """Two frames may wait for their ACK."""
    flow = FlowControl(reply_credit_limit=2, async_forward=request.param)
    boundary = Boundary(flow)
    yield boundary
    boundary.downstream.close()
    boundary.peer.close()
    boundary.signal.close()


ACK = encode_reply(ack())


def test_frames_go_on_until_credit_is_used_up(boundary: Boundary) -> None:
    boundary.downstream.send_prefill(chunk(0), ROWS)
    boundary.downstream.send_prefill(chunk(1), ROWS)
    with pytest.raises(StageFailureError, match="did not answer a prefill chunk"):
        boundary.downstream.send_prefill(chunk(2), ROWS)
    boundary.answer(ACK)
    boundary.downstream.send_prefill(chunk(2), ROWS)
    assert boundary.next_kinds(3) == ["PREFILL_EMBD"] * 3


def test_everything_else_keeps_its_place_behind_the_frames(boundary: Boundary) -> None:
    boundary.downstream.send_prefill(chunk(0), ROWS)
    boundary.downstream.send_work(DECODE, ROWS)
    boundary.answer(ACK, ACK)
    boundary.downstream.ask(STOP, "Stop")
    kinds = ["PREFILL_EMBD", "DECODE_EMBD", "STOP"]
    assert boundary.next_kinds(3) == kinds


def test_a_question_takes_the_acks_before_its_own(boundary: Boundary) -> None:
    boundary.downstream.send_prefill(chunk(0), ROWS)
    boundary.answer(ACK)
    with pytest.raises(StageFailureError, match="did not answer Stop"):
        boundary.downstream.ask(STOP, "Stop")


def test_statistics_of_acks_gather_until_they_are_taken(boundary: Boundary) -> None:
    computed = prefill_compute(stage_index=1, compute_us=9, token_count=1)
    boundary.downstream.send_prefill(chunk(0), ROWS)
    boundary.answer(encode_reply(ack(computed)))
    boundary.downstream.drain()
    taken = boundary.stats.take()
    assert taken.prefill_compute_us_at_slowest_rate == 9
    assert taken.prefill_edge_activation_bytes_max == len(ROWS)
    assert boundary.stats.take().prefill_compute_observation_count == 0


def test_late_acks_are_taken_between_messages(boundary: Boundary) -> None:
    boundary.downstream.send_prefill(chunk(0), ROWS)
    boundary.answer(ACK)
    boundary.downstream.take_arrived()
    boundary.downstream.drain()
    assert boundary.stats.take().prefill_edge_observation_count == 1


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (ACK, "an ACK nobody waits for"),
        (encode_reply(predicted_token(3)), "a prediction in answer to"),
    ],
)
def test_an_answer_out_of_turn_breaks_the_protocol(
    boundary: Boundary, reply: bytes, words: str
) -> None:
    boundary.answer(reply)
    with pytest.raises(StageFailureError, match=words) as caught:
        boundary.downstream.take_arrived()
    assert caught.value.code is FailureCode.PROTOCOL
    assert caught.value.stage_index == 1


def test_a_prediction_is_never_counted_as_an_ack(boundary: Boundary) -> None:
    boundary.downstream.send_prefill(chunk(0), ROWS)
    boundary.answer(encode_reply(predicted_token(3)))
    with pytest.raises(StageFailureError, match="a prediction in answer to"):
        boundary.downstream.drain()
