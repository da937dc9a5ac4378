"""A lane's tokens that come as foreseen: the short way through a stage.

The long way, `lane.py`, takes any message. This one takes the next token of the request
that the lane served last, for which everything is ready (`next_token.py`); what it does
not take is left untouched for the long way.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.wire.next_token import has_next
from skippyd.errors import StageFailureError
from skippyd.runtime.failures import EngineError
from skippyd.runtime.llama.next_frame import FORESEEN
from skippyd.stage.next_token import NextToken


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply
    from skippyd.net.tcp import StageSocket
    from skippyd.runtime.interface import StepResult
    from skippyd.stage.downstream import Downstream
    from skippyd.stage.first_return import FirstReturn
    from skippyd.stage.lane_board import LaneSeat
    from skippyd.stage.node import StageNode
    from skippyd.stage.waiting import LaneSignal


@attrs.define(eq=False, kw_only=True)
class ForeseenTokens:
    """What one lane is ready for; belongs to the lane's thread.

    Every method raises StageFailureError as `StageLane.handle` does.

    Args:
        node: The stage.
        signal: Where the lane's thread waits.
        seat: Where it notes what it is at.
        downstream: Its way on; None on the final stage.
        first_return: Where predictions come from; None on later stages.
        answer: How the final stage answers a message.
        await_prediction: How stage 0 waits for any prediction.
    """

    node: StageNode
    signal: LaneSignal
    seat: LaneSeat
    downstream: Downstream | None
    first_return: FirstReturn | None
    answer: Callable[[StageMessage, StepResult], None]
    await_prediction: Callable[[StageMessage], StageReply]
    _ready: NextToken | None = None

    def get_ready(self, message: StageMessage, result: StepResult) -> None:
        """Make the token after a message ready, if it can be foreseen."""
        self._ready = None
        if not has_next(message):
            return
        row = self.node.runtime.ready_row(message.session_id)
        if row is not None:
            self._ready = NextToken(
                node=self.node,
                message=message,
                row=row,
                result=result,
                downstream=self.downstream,
                answer=self.answer,
            )

    def take(self, message: StageMessage) -> bool:
        """Serve a message whole if it is the foreseen one."""
        ready, self._ready = self._ready, None
        if ready is None or not ready.takes(message):
            return False
        result = self._serve(ready, message.current_token)
        if result is None:
            return False
        if self.first_return is not None:
            token = self._token_after(ready, result)
            self.answer(message, attrs.evolve(result, token=token))
        return True

    def serve(self, connection: StageSocket) -> bytes:
        """Serve an upstream's tokens for as long as they come as foreseen.

        Returns:
            What was read besides; nothing, when something else happened.
        """
        if not isinstance(connection, socket.socket):
            return b""
        upstream, wake = connection.fileno(), self.signal.descriptor
        while (ready := self._ready) is not None and ready.frame is not None:
            onward = () if self.downstream is None else (self.downstream.link.fileno(),)
            arrival = ready.frame.wait((upstream, wake, *onward))
            if arrival != FORESEEN or not self._serve(ready, ready.frame.token):
                return ready.frame.received
        return b""

    def decode(self, session_id: int, position: int, token: int) -> int | None:
        """Decode a token of stage 0's own generation if it is the foreseen one.

        Returns:
            The token drawn after it. None, with nothing done, if it is another: then it
            takes a message.
        """
        ready = self._ready
        if ready is None or not ready.is_at(session_id, position):
            return None
        result = self._serve(ready, token)
        return None if result is None else self._token_after(ready, result)

    def _serve(self, ready: NextToken, token: int) -> StepResult | None:
        self._ready = None
        try:
            result = ready.serve(token, self.seat)
        except EngineError as error:
            ready.give_up()
            raise engine_failure(error, self.node, self.seat) from error
        self._ready = ready if result is not None else None
        return result

    def _token_after(self, ready: NextToken, result: StepResult) -> int:
        """At stage 0: what is drawn after the token that was served last."""
        if result.token is not None:
            return result.token
        assert self.first_return is not None
        assert self.downstream is not None
        self.seat.working_since_ns = time.monotonic_ns()
        message, link = ready.previous, self.downstream.link
        token = self.first_return.foreseen_token(message, link)
        if token is None:
            token = self.await_prediction(message).predicted
        self.seat.working_since_ns = 0
        return token


def engine_failure(
    error: EngineError, node: StageNode, seat: LaneSeat
) -> StageFailureError:
    """What ends a lane when its engine could not do a message."""
    seat.working_since_ns = 0
    return StageFailureError(error.code, node.index, f"{node.config.stage_id}: {error}")
