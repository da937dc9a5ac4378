"""What a message does at a stage: compute, pass on, answer.

Theory of operation. A lane belongs to one thread and one upstream: a connection, or
stage 0's own generation. `handle` takes one message and gives replies to the `reply`
function it was made with. Work is computed on the runtime and forwarded; the final
stage draws and answers stage 0 directly; stage 0 waits for that answer and hands it
to its driver. Prefill is acknowledged before it is computed, and at most `credit`
frames wait for their own acknowledgement, so several stages compute at once. Any
failure is raised as a `StageFailureError`: after one the lane is only good for
`close`, which releases every session it touched.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import attrs

from skippyd.core.wire.auth import lane_purpose
from skippyd.core.wire.kinds import MessageKind
from skippyd.core.wire.messages import check_state
from skippyd.core.wire.replies import ack, predicted_token, prefill_compute
from skippyd.errors import FailureCode, StageFailureError
from skippyd.runtime.failures import AbortedError, EngineError
from skippyd.stage.dialling import connect_to_stage
from skippyd.stage.downstream import NO_ACTIVATION, DeferredStats, Downstream
from skippyd.stage.final_return import FinalReturn
from skippyd.stage.first_return import FirstReturn
from skippyd.stage.foreseen import ForeseenTokens, engine_failure
from skippyd.stage.links import ReplyLink
from skippyd.stage.node import address_of
from skippyd.stage.waiting import LaneSignal, wait_readable


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.config.stage import PeerConfig
    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply
    from skippyd.runtime.interface import StepResult
    from skippyd.stage.lane_board import LaneSeat
    from skippyd.stage.node import StageNode

K = MessageKind

logger = logging.getLogger("skippyd.stage")


def _signal_of_node(lane: StageLane) -> LaneSignal:
    return LaneSignal.of(lane.node)


@attrs.define(eq=False, kw_only=True)
class StageLane:
    """One upstream's way through this stage.

    Args:
        node: The stage.
        reply: Where replies to the upstream go.
        signal: How other threads tell this lane to stop; where its thread waits.
    """

    node: StageNode
    reply: Callable[[StageReply], None]
    signal: LaneSignal = attrs.Factory(_signal_of_node, takes_self=True)
    _downstream: Downstream | None = None
    _first_return: FirstReturn | None = None
    _final_return: FinalReturn | None = None
    _sessions: set[int] = attrs.Factory(set)
    _stats: DeferredStats = attrs.Factory(DeferredStats)
    _seat: LaneSeat | None = None
    foreseen: ForeseenTokens = attrs.field(init=False)

    def open(self, *, patience_s: float) -> None:
        """Connect to the stage downstream, if there is one.

        Raises:
            StageFailureError: It is not there.
        """
        self._seat = self.node.board.sit()
        if self.node.is_first:
            self._first_return = FirstReturn(self.node, self.signal)
        if self.node.is_final:
            self._final_return = FinalReturn(self.node, self.signal)
        if self.node.config.downstream is not None:
            self._connect(self.node.config.downstream, patience_s)
        self.foreseen = ForeseenTokens(
            node=self.node,
            signal=self.signal,
            seat=self._seat,
            downstream=self._downstream,
            first_return=self._first_return,
            answer=self._answer,
            await_prediction=self._await_prediction,
        )

    def _connect(self, peer: PeerConfig, patience_s: float) -> None:
        connection = connect_to_stage(
            self.node,
            address_of(peer.endpoint),
            peer.stage_index,
            lane_purpose(self.node.index, peer.stage_index),
            patience_s=patience_s,
            waiter=self.signal,
        )
        link = ReplyLink(connection, peer.stage_index, peer_name=peer.stage_id)
        self._downstream = Downstream(
            node=self.node, link=link, signal=self.signal, stats=self._stats
        )

    def handle(self, message: StageMessage) -> None:
        """Do what one message asks.

        Raises:
            StageFailureError: It cannot be done; the lane is of no more use.
            RemoteProtocolError: The message contradicts itself.
        """
        assert self._seat is not None, "the lane is not open"
        if self.foreseen.take(message):
            return
        check_state(message)
        self.node.count_message()
        self._seat.begin(message)
        try:
            self._dispatch(message)
            self._seat.done(message)
        except EngineError as error:
            raise engine_failure(error, self.node, self._seat) from error

    def watched(self) -> list[ReplyLink]:
        """Links on which something may arrive between messages."""
        links = [] if self._downstream is None else [self._downstream.link]
        return links + ([] if self._first_return is None else self._first_return.links)

    def on_readable(self) -> None:
        """Take in what arrived between messages: late ACKs, failures, a lost stage.

        Raises:
            StageFailureError: A stage failed or is lost.
        """
        if self._downstream is not None and wait_readable([self._downstream.link], 0):
            self._downstream.take_arrived()
        if self._first_return is not None:
            self._first_return.check_idle()

    def interrupt(self) -> None:
        """Make whatever this lane waits for end now; from any thread."""
        self.signal.interrupt()
        downstream = self._downstream
        if downstream is not None:
            downstream.interrupt()  # a write may be blocked as well

    def close(self) -> None:
        """Release the sessions of this lane and its connections; once, by its owner.

        Whatever of it fails, the rest is still done, and the failure is logged.
        """
        with contextlib.ExitStack() as steps:
            steps.callback(self.signal.close)
            if self._seat is not None:
                steps.callback(self.node.board.leave, self._seat)
            if self._first_return is not None:
                steps.callback(self._first_return.close)
            if self._final_return is not None:
                steps.callback(self._final_return.close)
            if self._downstream is not None:
                steps.callback(self._downstream.close)
            for session_id in sorted(self._sessions):
                steps.callback(self._release, session_id)
            if self._downstream is not None:
                self._downstream.interrupt()
        self._sessions.clear()
        self._seat = None

    def fail_flows(self, failure: StageFailureError) -> None:
        """Tell stage 0 directly that this lane's requests have failed."""
        if self._final_return is not None:
            self._final_return.fail(failure)

    def _release(self, session_id: int) -> None:
        try:
            self.node.runtime.release(session_id)
        except AbortedError:
            logger.debug("session %s ended with its engine", session_id)
        except EngineError as error:
            logger.warning("session %s is not released: %s", session_id, error)

    def _dispatch(self, message: StageMessage) -> None:
        match message.kind:
            case K.DECODE_EMBD | K.PREFILL_FINAL_EMBD:
                self._predict(message)
            case K.PREFILL_EMBD:
                self._prefill(message)
            case K.CONFIGURE_GENERATION:
                self._configure(message)
            case K.TRIM_SESSION:
                self._trim(message)
            case K.STOP:
                self._stop(message)
            case K.PREDICTION_RETURN_OPEN:
                raise self._refusal(message, "opens a connection of its own")
            case _:
                raise self._refusal(message, "is not served by this stage")

    # ---- work ------------------------------------------------------------------

    def _prefill(self, message: StageMessage) -> None:
        has_credit = self.node.flow.credit > 0
        if has_credit:
            self.reply(ack())
        result = self._step(message, predict=False)
        assert self._seat is not None
        self._seat.computed(message, result)
        self._stats.fold(
            prefill_compute(
                stage_index=self.node.index,
                compute_us=result.compute_ns // 1000,
                token_count=message.token_count,
            )
        )
        if self._downstream is not None:
            self._downstream.send_prefill(message, result.activation or NO_ACTIVATION)
        if not has_credit:
            self.reply(ack(self._stats.take()))

    def _predict(self, message: StageMessage) -> None:
        if message.sampling is not None and self.node.is_final:
            self._sessions.add(message.session_id)
            self.node.runtime.configure(message.session_id, message.sampling)
        result = self._step(message, predict=True)
        if self._downstream is not None:
            self._downstream.send_work(message, result.activation or NO_ACTIVATION)
        else:
            self._answer(message, result)
        assert self._seat is not None
        self._seat.computed(message, result)
        self.foreseen.get_ready(message, result)
        self._bring_prediction(message)

    def _answer(self, message: StageMessage, result: StepResult) -> None:
        assert result.token is not None
        reply = predicted_token(result.token)
        if self._first_return is not None:
            self.reply(reply)
        else:
            assert self._final_return is not None
            self._final_return.send(message, reply, self.reply)

    def _bring_prediction(self, message: StageMessage) -> None:
        """At stage 0 of several: wait for what the final stage draws."""
        if self._downstream is not None and self._first_return is not None:
            self.reply(self._await_prediction(message))

    def _step(self, message: StageMessage, *, predict: bool) -> StepResult:
        is_first = self._first_return is not None
        if message.pos_start < 0 or not (is_first or len(message.activation)):
            raise self._incomplete(message)
        # Before the work: a step that fails half-way has made the session already.
        self._sessions.add(message.session_id)
        return self.node.runtime.step(
            message.session_id,
            position=message.pos_start,
            tokens=message.tokens,
            activation=None if is_first else message.activation,
            predict=predict,
        )

    def _incomplete(self, message: StageMessage) -> StageFailureError:
        what = f"{message.kind.name} without a position; send pos_start"
        if message.pos_start >= 0:
            what = (
                f"{message.kind.name} without activation reached "
                f"{self.node.config.stage_id}, which does not hold the embeddings; "
                "send it to stage 0"
            )
        return StageFailureError(FailureCode.BAD_BATCH, self.node.index, what)

    def _await_prediction(self, message: StageMessage) -> StageReply:
        assert self._first_return is not None
        assert self._downstream is not None
        while True:
            reply, _link = self._first_return.next_reply(message, self._downstream.link)
            if reply.tokens:
                return reply
            self._downstream.count_ack(reply)

    # ---- control ---------------------------------------------------------------

    def _configure(self, message: StageMessage) -> None:
        if message.chat_metadata:
            raise StageFailureError(
                FailureCode.SAMPLING,
                self.node.index,
                "chat sampling metadata (grammars, triggers) is not supported yet",
            )
        if self._downstream is not None:
            self._downstream.drain()
        self._sessions.add(message.session_id)
        if self._first_return is not None and self._downstream is not None:
            self._first_return.open(message)
        if self._final_return is not None and self._first_return is None:
            self._final_return.open(message)
        if self.node.is_final:
            self.node.runtime.configure(message.session_id, message.sampling)
        self._relay_control(message, "ConfigureGeneration")

    def _trim(self, message: StageMessage) -> None:
        if self._downstream is not None:
            self._downstream.drain()
        self.node.runtime.trim(message.session_id, message.token_count)
        self._relay_control(message, "TrimSession")

    def _stop(self, message: StageMessage) -> None:
        if self._downstream is not None:
            self._downstream.drain()
        self.node.runtime.release(message.session_id)
        self._sessions.discard(message.session_id)
        if self._first_return is not None:
            self._first_return.end(message)
        if self._final_return is not None:
            self._final_return.end(message)
        self._relay_control(message, "Stop")

    def _relay_control(self, message: StageMessage, what: str) -> None:
        """Pass a control message down, await its ACK and acknowledge upstream."""
        if self._downstream is not None:
            self._downstream.ask(message, what)
        self.reply(ack(self._stats.take()))

    def _refusal(self, message: StageMessage, why: str) -> StageFailureError:
        return StageFailureError(
            FailureCode.KIND_NOT_SERVED,
            self.node.index,
            f"{message.kind.name} ({message.kind.value}) {why}",
        )
