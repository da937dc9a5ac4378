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
import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.wire.auth import lane_purpose
from skippyd.core.wire.kinds import MessageKind
from skippyd.core.wire.messages import check_state, forwarded
from skippyd.core.wire.replies import (
    NO_STATS,
    StageStats,
    ack,
    merge,
    predicted_token,
    prefill_compute,
    prefill_edge,
)
from skippyd.errors import FailureCode, StageFailureError
from skippyd.runtime.failures import AbortedError, EngineError
from skippyd.stage.dialling import connect_to_stage
from skippyd.stage.forwarder import Forwarder
from skippyd.stage.links import ReplyLink, wait_readable
from skippyd.stage.node import address_of
from skippyd.stage.return_path import FinalReturn, FirstReturn


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.wire.activation import Payload
    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply
    from skippyd.stage.node import StageNode

K = MessageKind
NO_ACTIVATION = memoryview(b"")


@attrs.define(eq=False, kw_only=True)
class StageLane:
    """One upstream's way through this stage.

    Args:
        node: The stage.
        reply: Where replies to the upstream go.
    """

    node: StageNode
    reply: Callable[[StageReply], None]
    downstream: ReplyLink | None = None
    _forwarder: Forwarder | None = None
    _first_return: FirstReturn | None = None
    _final_return: FinalReturn | None = None
    _sessions: set[int] = attrs.Factory(set)
    _pending_acks: int = 0
    _stats: StageStats = NO_STATS
    _is_stopped: bool = False

    def open(self, *, patience_s: float) -> None:
        """Connect to the stage downstream, if there is one.

        Raises:
            StageFailureError: It is not there.
        """
        self.node.lane_opened()
        peer = self.node.config.downstream
        if self.node.is_first:
            self._first_return = FirstReturn(self.node)
        if self.node.is_final:
            self._final_return = FinalReturn(self.node)
        if peer is None:
            return
        connection = connect_to_stage(
            self.node,
            address_of(peer.endpoint),
            peer.stage_index,
            lane_purpose(self.node.index, peer.stage_index),
            patience_s=patience_s,
            is_stopped=lambda: self._is_stopped,
        )
        self.downstream = ReplyLink(
            connection, peer.stage_index, peer_name=peer.stage_id
        )

    def handle(self, message: StageMessage) -> None:
        """Do what one message asks.

        Raises:
            StageFailureError: It cannot be done; the lane is of no more use.
            RemoteProtocolError: The message contradicts itself.
        """
        check_state(message)
        self.node.messages += 1
        try:
            self._dispatch(message)
        except EngineError as error:
            raise StageFailureError(
                error.code, self.node.index, f"{self.node.config.stage_id}: {error}"
            ) from error

    def watched(self) -> list[ReplyLink]:
        """Links on which something may arrive between messages."""
        links = [self.downstream] if self.downstream is not None else []
        if self._first_return is not None and self._first_return.link is not None:
            links.append(self._first_return.link)
        return links

    def on_readable(self) -> None:
        """Take in what arrived between messages: late ACKs, failures, a lost stage.

        Raises:
            StageFailureError: A stage failed or is lost.
        """
        if self.downstream is not None and wait_readable([self.downstream], 0):
            self._take_acks(self.downstream)
        if self._first_return is not None:
            self._first_return.check_idle()

    def interrupt(self) -> None:
        """Make whatever this lane waits for end now; from any thread."""
        self._is_stopped = True
        for link in self.watched():
            link.interrupt()

    def cancel(self) -> None:
        """Let a wait for a prediction end soon; from any thread."""
        if self._first_return is not None:
            self._first_return.cancel()

    def close(self) -> None:
        """Release the sessions of this lane and its connections."""
        for session_id in sorted(self._sessions):
            # An engine that was stopped holds no sessions any more.
            with contextlib.suppress(AbortedError):
                self.node.runtime.release(session_id)
        self._sessions.clear()
        if self._first_return is not None:
            self._first_return.close()
        if self._final_return is not None:
            self._final_return.close()
        if self.downstream is not None:
            self.downstream.interrupt()
        if self._forwarder is not None:
            self._forwarder.close()
        if self.downstream is not None:
            self.downstream.close()
        self.node.lane_closed()

    def fail_flows(self, failure: StageFailureError) -> None:
        """Tell stage 0 directly that this lane's requests have failed."""
        if self._final_return is not None:
            self._final_return.fail(failure)

    def _dispatch(self, message: StageMessage) -> None:
        match message.kind:
            case K.PREFILL_EMBD:
                self._prefill(message)
            case K.DECODE_EMBD | K.PREFILL_FINAL_EMBD:
                self._predict(message)
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
        activation, compute_us = self._compute(message, predict=False)
        self._fold(
            prefill_compute(
                stage_index=self.node.index,
                compute_us=compute_us,
                token_count=message.token_count,
            )
        )
        if self.downstream is not None:
            self._forward_prefill(message, activation)
        if not has_credit:
            self.reply(ack(self._take_stats()))

    def _predict(self, message: StageMessage) -> None:
        if self.downstream is None:
            token = self._draw(message)
            if self._first_return is not None:
                self.reply(predicted_token(token))
            else:
                assert self._final_return is not None
                self._final_return.send(message, predicted_token(token), self.reply)
            return
        activation, _us = self._compute(message, predict=True)
        self._flush()
        self.downstream.send(
            forwarded(
                message, source_stage_index=self.node.index, activation=activation
            )
        )
        if self._first_return is not None:
            self.reply(self._await_prediction(message))

    def _draw(self, message: StageMessage) -> int:
        self._sessions.add(message.session_id)
        if message.sampling is not None:
            self.node.runtime.configure(message.session_id, message.sampling)
        result = self.node.runtime.step(
            message.session_id,
            position=self._position(message),
            tokens=message.tokens,
            activation=self._input(message),
            predict=True,
        )
        assert result.token is not None
        return result.token

    def _compute(
        self, message: StageMessage, *, predict: bool
    ) -> tuple[memoryview, int]:
        self._sessions.add(message.session_id)
        result = self.node.runtime.step(
            message.session_id,
            position=self._position(message),
            tokens=message.tokens,
            activation=self._input(message),
            predict=predict,
        )
        return result.activation or NO_ACTIVATION, result.compute_ns // 1000

    def _position(self, message: StageMessage) -> int:
        if message.pos_start < 0:
            raise StageFailureError(
                FailureCode.BAD_BATCH,
                self.node.index,
                f"{message.kind.name} without a position; send pos_start",
            )
        return message.pos_start

    def _input(self, message: StageMessage) -> Payload | None:
        if self.node.is_first:
            return None
        if not len(message.activation):
            raise StageFailureError(
                FailureCode.BAD_BATCH,
                self.node.index,
                f"{message.kind.name} without activation reached "
                f"{self.node.config.stage_id}, which does not hold the embeddings; "
                "send it to stage 0",
            )
        return message.activation

    def _forward_prefill(self, message: StageMessage, activation: memoryview) -> None:
        assert self.downstream is not None
        onward = forwarded(
            message, source_stage_index=self.node.index, activation=activation
        )
        flow = self.node.flow
        begun = time.perf_counter_ns()
        while self._pending_acks >= max(flow.credit, 1):
            self._one_ack("a prefill chunk")
        waited = time.perf_counter_ns()
        if flow.async_forward and flow.credit > 0:
            if self._forwarder is None:
                self._forwarder = Forwarder(self.downstream, flow.max_inflight)
            self._forwarder.put(onward)
        else:
            self.downstream.send(onward)
        written = time.perf_counter_ns()
        self._pending_acks += 1
        if flow.credit == 0:
            self._drain()
        self._fold(
            prefill_edge(
                stage_index=self.node.index,
                write_us=(written - waited) // 1000,
                wait_us=(waited - begun) // 1000,
                activation_bytes=len(activation),
            )
        )

    def _await_prediction(self, message: StageMessage) -> StageReply:
        assert self._first_return is not None
        assert self.downstream is not None
        while True:
            reply = self._first_return.next_reply(message, self.downstream)
            if reply.tokens:
                return reply
            self._count_ack(reply)

    # ---- control ---------------------------------------------------------------

    def _configure(self, message: StageMessage) -> None:
        if message.chat_metadata:
            raise StageFailureError(
                FailureCode.SAMPLING,
                self.node.index,
                "chat sampling metadata (grammars, triggers) is not supported yet",
            )
        self._drain()
        self._sessions.add(message.session_id)
        if self._first_return is not None and self.downstream is not None:
            self._first_return.open(message)
        if self._final_return is not None and self._first_return is None:
            self._final_return.open(message)
        if self.node.is_final:
            self.node.runtime.configure(message.session_id, message.sampling)
        self._relay_control(message, "ConfigureGeneration")

    def _trim(self, message: StageMessage) -> None:
        self._drain()
        self.node.runtime.trim(message.session_id, message.token_count)
        self._relay_control(message, "TrimSession")

    def _stop(self, message: StageMessage) -> None:
        self._drain()
        self._sessions.discard(message.session_id)
        self.node.runtime.release(message.session_id)
        if self._first_return is not None:
            self._first_return.end(message)
        if self._final_return is not None:
            self._final_return.end(message)
        self._relay_control(message, "Stop")

    def _relay_control(self, message: StageMessage, what: str) -> None:
        """Pass a control message down, await its ACK and acknowledge upstream."""
        if self.downstream is not None:
            self.downstream.send(
                forwarded(
                    message,
                    source_stage_index=self.node.index,
                    activation=NO_ACTIVATION,
                )
            )
            reply = self.downstream.wait_reply(self.node.timings.reply, what)
            self._fold(reply.stats)
        self.reply(ack(self._take_stats()))

    def _refusal(self, message: StageMessage, why: str) -> StageFailureError:
        return StageFailureError(
            FailureCode.KIND_NOT_SERVED,
            self.node.index,
            f"{message.kind.name} ({message.kind.value}) {why}",
        )

    # ---- acknowledgements ----------------------------------------------------------

    def _flush(self) -> None:
        if self._forwarder is not None:
            self._forwarder.flush()

    def _drain(self) -> None:
        self._flush()
        while self._pending_acks:
            self._one_ack("its prefill chunks")

    def _one_ack(self, what: str) -> None:
        assert self.downstream is not None
        self._count_ack(self.downstream.wait_reply(self.node.timings.reply, what))

    def _take_acks(self, link: ReplyLink) -> None:
        link.pump()
        while (reply := link.next_buffered()) is not None:
            self._count_ack(reply)

    def _count_ack(self, reply: StageReply) -> None:
        if not self._pending_acks:
            raise StageFailureError(
                FailureCode.PROTOCOL,
                self.node.index + 1,
                f"{self.node.name_of(self.node.index + 1)} sent a reply nobody "
                "waits for",
            )
        self._pending_acks -= 1
        self._fold(reply.stats)

    def _fold(self, stats: StageStats) -> None:
        self._stats = merge(self._stats, stats)

    def _take_stats(self) -> StageStats:
        taken, self._stats = self._stats, NO_STATS
        return taken
