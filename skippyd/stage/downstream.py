"""The way to the next stage: prefill frames on credit, everything else in step.

Owns the link, the background writer (plain connections only) and the count of frames that wait for their ACK.
Statistics that come with ACKs are kept until somebody upstream asks for them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.wire.messages import forwarded
from skippyd.core.wire.replies import NO_STATS, StageStats, merge, prefill_edge
from skippyd.errors import FailureCode, StageFailureError
from skippyd.stage.forwarder import Forwarder


if TYPE_CHECKING:
    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply
    from skippyd.stage.links import ReplyLink
    from skippyd.stage.node import StageNode
    from skippyd.stage.waiting import LaneSignal

NO_ACTIVATION = memoryview(b"")


@attrs.define
class DeferredStats:
    """Statistics of a lane that travel upstream with its next synchronous ACK."""

    _stats: StageStats = NO_STATS

    def fold(self, stats: StageStats) -> None:
        """Add some."""
        self._stats = merge(self._stats, stats)

    def take(self) -> StageStats:
        """Hand over what has gathered, and begin anew."""
        taken, self._stats = self._stats, NO_STATS
        return taken


@attrs.define(eq=False, kw_only=True)
class Downstream:
    """One lane's connection to the next stage.

    Args:
        node: This stage.
        link: The connection.
        signal: Where the lane's thread waits.
        stats: Where statistics gather.
    """

    node: StageNode
    link: ReplyLink
    signal: LaneSignal
    stats: DeferredStats
    _forwarder: Forwarder | None = None
    _pending_acks: int = 0

    def send_prefill(self, message: StageMessage, activation: memoryview) -> None:
        """Pass a computed chunk on, once credit allows it.

        Raises:
            StageFailureError: The stage failed, is lost or gives no credit in time.
        """
        onward = self._onward(message, activation)
        flow = self.node.flow
        begun = time.perf_counter_ns()
        while self._pending_acks >= max(flow.credit, 1):
            self._one_ack("a prefill chunk")
        waited = time.perf_counter_ns()
        is_for_writer = flow.async_forward and not self.link.is_for_one_thread
        if is_for_writer and flow.credit > 0:
            self._writer().put(onward)
        else:
            self.link.send(onward)
        written = time.perf_counter_ns()
        self._pending_acks += 1
        if flow.credit == 0:
            self.drain()
        self.stats.fold(
            prefill_edge(
                stage_index=self.node.index,
                write_us=(written - waited) // 1000,
                wait_us=(waited - begun) // 1000,
                activation_bytes=len(activation),
            )
        )

    def send_work(self, message: StageMessage, activation: memoryview) -> None:
        """Pass on a message that is answered with a prediction.

        Raises:
            StageFailureError: The stage failed or is lost.
        """
        if self._forwarder is not None:
            self._forwarder.flush()
        self.link.send(self._onward(message, activation))

    def ask(self, message: StageMessage, what: str) -> None:
        """Pass a control message on and take its ACK, after all that are pending.

        Raises:
            StageFailureError: The stage failed, is lost or does not answer.
        """
        self.drain()
        self.link.send(self._onward(message, NO_ACTIVATION))
        reply = self.link.wait_reply(self.node.reply_patience_s, what, self.signal)
        self._check_is_ack(reply, what)
        self.stats.fold(reply.stats)

    def drain(self) -> None:
        """Wait until every frame is written and acknowledged.

        Raises:
            StageFailureError: The stage failed, is lost or does not answer.
        """
        if self._forwarder is not None:
            self._forwarder.flush()
        while self._pending_acks:
            self._one_ack("its prefill chunks")

    def take_arrived(self) -> None:
        """Take what is readable between messages: late ACKs, or that it is lost.

        Raises:
            StageFailureError: The stage failed or is lost.
        """
        self.link.pump()
        while (reply := self.link.next_buffered()) is not None:
            self.count_ack(reply)

    def count_ack(self, reply: StageReply) -> None:
        """Count an ACK that arrived while something else was waited for.

        Raises:
            StageFailureError: It is none, or none is due.
        """
        self._check_is_ack(reply, "a prefill chunk")
        if not self._pending_acks:
            raise self._out_of_turn("an ACK nobody waits for")
        self._pending_acks -= 1
        self.stats.fold(reply.stats)

    def interrupt(self) -> None:
        """Wake whatever thread uses the connection; from any thread."""
        self.link.interrupt()

    def close(self) -> None:
        """End the writer and close the connection."""
        self.link.interrupt()
        try:
            if self._forwarder is not None:
                self._forwarder.close()
        finally:
            self.link.close()

    def _onward(self, message: StageMessage, activation: memoryview) -> StageMessage:
        return forwarded(
            message, source_stage_index=self.node.index, activation=activation
        )

    def _writer(self) -> Forwarder:
        if self._forwarder is None:
            self._forwarder = Forwarder(
                self.link,
                self.node.flow.max_inflight,
                waiter=self.signal,
                write_s=self.node.timings.frame,
            )
        return self._forwarder

    def _one_ack(self, what: str) -> None:
        patience_s = self.node.reply_patience_s
        self.count_ack(self.link.wait_reply(patience_s, what, self.signal))

    def _check_is_ack(self, reply: StageReply, what: str) -> None:
        if reply.tokens:
            raise self._out_of_turn(f"a prediction in answer to {what}")

    def _out_of_turn(self, what: str) -> StageFailureError:
        return StageFailureError(
            FailureCode.PROTOCOL,
            self.link.peer_index,
            f"{self.link.peer_name} broke the protocol: it sent {what}",
        )
