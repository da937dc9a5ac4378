"""What is made ready for one token: what it takes, and in which order it serves."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.core.wire import requests
from skippyd.core.wire.decode import MessageParser, ReplyParser
from skippyd.core.wire.messages import StageMessage, forwarded
from skippyd.core.wire.replies import predicted_token
from skippyd.errors import StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.stage.downstream import DeferredStats, Downstream
from skippyd.stage.links import ReplyLink
from skippyd.stage.next_token import NextToken
from skippyd.stage.node import StageNode
from skippyd.stage.predictions import ReturnSink, flow_key
from skippyd.stage.waiting import LaneSignal
from support.scripted_runtime import WIDTH, ScriptedRuntime, next_token
from support.stage_room import config_of


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.runtime.interface import StepResult
    from skippyd.stage.lane_board import LaneSeat

PORTS = [1001, 1002, 1003]
ROW = bytes(range(4 * WIDTH))
HELD = (4, 5, 6)


@attrs.define
class Stage:
    """One stage of three that has just served a token."""

    node: StageNode
    runtime: ScriptedRuntime
    message: StageMessage
    next_token: NextToken
    seat: LaneSeat
    peer: socket.socket
    answers: list[StepResult]


def decode(position: int, token: int, index: int) -> StageMessage:
    """The decode of one token as it reaches a stage."""
    message = requests.decode(
        request_id=RequestId(7),
        session_id=SessionId(8),
        pos_start=position,
        token=token,
        prompt_token_count=2,
        decode_step=position - 1,
    )
    if index == 0:
        return message
    return forwarded(message, source_stage_index=index - 1, activation=ROW)


@contextlib.contextmanager
def stage_at(index: int, *, has_sink: bool = True) -> Iterator[Stage]:
    """A stage behind position 2 of a request, its way on being a socket pair."""
    runtime = ScriptedRuntime(index=index, is_final=index == len(PORTS) - 1)
    node = StageNode(config=config_of(index, PORTS), runtime=runtime)
    signal = LaneSignal.of(node)
    ours, theirs = socket.socketpair()
    message = decode(2, HELD[-1], index)
    activation = None if index == 0 else ROW
    *_, result = [
        runtime.step(
            8, position=position, tokens=(token,), activation=activation, predict=True
        )
        for position, token in enumerate(HELD)
    ]
    downstream = None
    if not runtime.is_final:
        link = ReplyLink(ours, index + 1, peer_name="next")
        downstream = Downstream(
            node=node, link=link, signal=signal, stats=DeferredStats()
        )
    elif has_sink:
        node.sinks.bind(flow_key(message), ReturnSink(ours))
    answers: list[StepResult] = []
    row = runtime.ready_row(8)
    assert row is not None
    made = NextToken(
        node=node,
        message=message,
        row=row,
        result=result,
        downstream=downstream,
        answer=lambda _message, answered: answers.append(answered),
    )
    with ours, theirs, contextlib.closing(signal):
        theirs.settimeout(5.0)
        seat = node.board.sit()
        seat.begin(message)
        yield Stage(node, runtime, message, made, seat, theirs, answers)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_it_takes_the_message_of_the_next_token_alone(index: int) -> None:
    with stage_at(index) as stage:
        ready = stage.next_token
        assert ready.is_at(8, 3)
        assert not ready.is_at(8, 2)
        assert not ready.is_at(9, 3)
        assert ready.takes(decode(3, 11, index))
        assert not ready.takes(decode(4, 11, index))
        assert not ready.takes(stage.message)


@pytest.mark.parametrize("index", [1, 2])
def test_a_message_with_too_little_activation_is_not_taken(index: int) -> None:
    with stage_at(index) as stage:
        short = attrs.evolve(decode(3, 11, index), activation=ROW[:4])
        assert not stage.next_token.takes(short)


@pytest.mark.parametrize("sent_share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("index", [0, 1])
def test_what_it_passes_on_is_the_frame_of_the_long_way(
    index: int, sent_share: float
) -> None:
    with stage_at(index) as stage:
        stage.runtime.sent_share = sent_share
        parser = MessageParser(WIDTH)
        for position, token in ((3, 11), (4, 12)):
            message = decode(position, token, index)
            assert stage.next_token.takes(message)
            result = stage.next_token.serve(token, stage.seat)
            assert result is not None
            assert result.activation is not None
            parser.receive_data(stage.peer.recv(4096))
            assert parser.next_value() == forwarded(
                message, source_stage_index=index, activation=result.activation
            )
        assert stage.node.messages == 2


def test_the_final_stage_answers_on_the_sink_itself() -> None:
    with stage_at(2) as stage:
        parser = ReplyParser()
        held = list(HELD)
        for token in (11, 12):
            held.append(token)
            assert stage.next_token.serve(token, stage.seat) is not None
            parser.receive_data(stage.peer.recv(4096))
            assert parser.next_value() == predicted_token(next_token(held))
        assert stage.answers == []


@pytest.mark.parametrize("reason", ["no sink", "nothing sent", "flow over"])
def test_the_lane_answers_where_the_row_does_not(reason: str) -> None:
    with stage_at(2, has_sink=reason != "no sink") as stage:
        if reason == "nothing sent":
            stage.runtime.sent_share = 0.0
        elif reason == "flow over":
            stage.node.sinks.drop(flow_key(stage.message))
        assert stage.next_token.serve(11, stage.seat) is not None
        assert [answer.token for answer in stage.answers] == [next_token([*HELD, 11])]


def test_half_an_answer_ends_the_connection() -> None:
    with stage_at(2) as stage:
        stage.runtime.sent_share = 0.5
        with pytest.raises(
            StageFailureError, match="stage 0 took 120 of the 240 bytes"
        ):
            stage.next_token.serve(11, stage.seat)
        assert len(stage.peer.recv(4096)) == 120
        assert stage.peer.recv(4096) == b""


def test_what_is_served_is_noted_as_the_long_way_notes_it() -> None:
    with stage_at(1) as stage:
        assert stage.next_token.serve(11, stage.seat) is not None
        activity = stage.node.board.activity()
        assert [session.token_count for session in activity.sessions] == [4]
        assert [lane.state for lane in activity.lanes] == ["decode"]
        assert activity.lanes[0].working_ms is None
        assert stage.node.messages == 1


def test_a_session_that_is_another_by_now_is_not_served() -> None:
    with stage_at(1) as stage:
        stage.runtime.trim(8, 1)
        assert stage.next_token.serve(11, stage.seat) is None
        assert stage.node.messages == 0


def test_a_row_that_was_given_up_sends_nothing() -> None:
    with stage_at(1) as stage:
        stage.next_token.give_up()
        result = stage.runtime.rows[8].run(11)
        assert result is not None
        assert result.sent_bytes == 0
