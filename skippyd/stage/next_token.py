"""A lane's next token, made ready while the lane waits for it.

Theory of operation. After a decode the lane foresees the next one: the same request, one
position on. What can be known is prepared then, at a time when another stage computes
and nobody waits for this one: the engine's row, the head of the frame to send, and the
frame to receive. When that frame comes, the row is run and passed on at once; counting
and the preparation of the next one wait until the next stage is at work. Anything else
that comes goes the ordinary way, and so does a token whose session is no longer what it
was.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.wire.next_token import (
    HEAD_TOKEN_AT,
    NextHead,
    follows,
)
from skippyd.runtime.llama.native_row import NOWHERE
from skippyd.runtime.llama.next_frame import NextFrame, next_frame
from skippyd.stage.predictions import flow_key


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.wire.messages import StageMessage
    from skippyd.runtime.interface import NextRow, StepResult
    from skippyd.stage.downstream import Downstream
    from skippyd.stage.lane_board import LaneSeat
    from skippyd.stage.node import StageNode
    from skippyd.stage.predictions import ReturnSink


class NextToken:
    """What is ready for the next token of one request.

    Args:
        node: The stage.
        message: The token before it; `has_next` holds.
        row: The engine's row for it.
        result: What it gave for `message`.
        downstream: Where the next one's goes; None on the final stage.
        answer: How the final stage answers, when the row does not do it itself.
    """

    def __init__(
        self,
        *,
        node: StageNode,
        message: StageMessage,
        row: NextRow,
        result: StepResult,
        downstream: Downstream | None,
        answer: Callable[[StageMessage, StepResult], None],
    ) -> None:
        self._node = node
        self._answer = answer
        # Of its own: it moves on from token to token.
        self._previous = attrs.evolve(message, activation=b"")
        self._row = row
        self._downstream = downstream
        self._onward: NextHead | None = None
        self._incoming: NextHead | None = None
        self._sink: ReturnSink | None = None
        self.frame: NextFrame | None = None
        """What the upstream should send; None where it is not read as such."""
        row.deliver_nowhere()
        if downstream is not None:
            self._onward = self._send_on(downstream, message, result)
        else:
            self._sink = node.sinks.find(flow_key(message))
        if self._sink is not None:
            self._sink.lend(row)
        if not node.is_first:
            self._incoming = NextHead(
                message,
                source_stage_index=message.source_stage_index,
                activation=row.input,
            )
            self.frame = next_frame(
                len(self._incoming.bytes),
                HEAD_TOKEN_AT,
                row.input,
                poll_us=node.config.lane_poll_us,
            )
            self._expect()

    @property
    def previous(self) -> StageMessage:
        """The token before it, without its activation."""
        return self._previous

    def is_at(self, session_id: int, position: int) -> bool:
        """Whether it is this token of this session."""
        previous = self._previous
        return previous.session_id == session_id and previous.pos_start + 1 == position

    def takes(self, message: StageMessage) -> bool:
        """Whether a message is the foreseen one; its activation is taken over."""
        if not follows(message, self._previous):
            return False
        if not self._node.is_first:
            if len(message.activation) != len(self._row.input):
                return False
            self._row.input[:] = message.activation
        return True

    def serve(self, token: int, seat: LaneSeat) -> StepResult | None:
        """Compute the token, pass it on, and get ready for the one after it.

        None, with nothing done, if it cannot be: the session is another by now.

        Args:
            token: The token.
            seat: Where the lane notes what it is at.

        Raises:
            EngineError: It could not be computed.
            StageFailureError: The next stage failed or is lost, or stage 0 is.
        """
        seat.working_since_ns = time.monotonic_ns()
        result = self._row.run(token)
        if result is None:
            return None
        self._pass_on(result)
        # The next stage is at work: what follows is nobody's wait.
        self._stand_behind(token)
        self._node.count_message()
        seat.computed(self._previous, result)
        seat.done(self._previous)
        return result

    def give_up(self) -> None:
        """Let the row send nothing more, even if its run has not ended yet."""
        self._row.deliver_nowhere()

    def _send_on(
        self, downstream: Downstream, message: StageMessage, result: StepResult
    ) -> NextHead:
        assert result.activation is not None
        head = NextHead(
            message, source_stage_index=self._node.index, activation=result.activation
        )
        is_plain = isinstance(downstream.link.connection, socket.socket)
        descriptor = downstream.link.fileno() if is_plain else NOWHERE
        self._row.deliver(head.bytes, HEAD_TOKEN_AT, descriptor)
        return head

    def _pass_on(self, result: StepResult) -> None:
        """Send what the row has not sent itself."""
        if self._downstream is not None:
            assert self._onward is not None
            assert result.activation is not None
            self._downstream.link.send_rest(
                [self._onward.bytes, result.activation], result.sent_bytes
            )
        elif self._sink is not None and result.sent_bytes:
            self._sink.check_whole(result.sent_bytes)
        elif not self._node.is_first:
            self._answer(self._previous, result)

    def _stand_behind(self, token: int) -> None:
        previous = self._previous
        previous.pos_start += 1
        previous.decode_step += 1
        previous.current_token, previous.tokens = token, (token,)
        for head in (self._onward, self._incoming):
            if head is not None:
                head.stand_behind(previous)
        self._expect()
        self._row.make_ready()

    def _expect(self) -> None:
        if self.frame is not None and self._incoming is not None:
            self.frame.expect(self._incoming.bytes)
