"""The two ends of the direct prediction return, as one lane sees them.

Stage 0 dials the final stage and opens the flow there; if that fails, the final stage
dials stage 0; with two stages the upstream connection is the last resort. A
ConfigureGeneration is acknowledged only once a path is open (contract, "Wire").
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from skippyd.core.wire import requests
from skippyd.core.wire.auth import return_purpose
from skippyd.core.wire.replies import Failure
from skippyd.errors import FailureCode, StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.stage.dialling import connect_to_stage
from skippyd.stage.links import ReplyLink, wait_readable
from skippyd.stage.predictions import ReturnSink


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply
    from skippyd.stage.node import StageNode
    from skippyd.stage.predictions import FlowKey

ADOPTION_POLL_SECONDS = 0.02


def flow_key(message: StageMessage) -> FlowKey:
    """What a prediction return is bound to."""
    return (message.request_id, message.session_id)


class FirstReturn:
    """Stage 0's end.

    Args:
        node: Stage 0.
    """

    def __init__(self, node: StageNode) -> None:
        self._node = node
        self.link: ReplyLink | None = None
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_cancelled = False

    def open(self, message: StageMessage) -> None:
        """Bind a request to the connection to the final stage, dialling if needed."""
        self._is_cancelled = False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        address = self._node.final_address
        self._node.waiters.expect(flow_key(message))
        if address is None:
            return
        if self.link is None:
            self.link = self._dial()
        if self.link is not None:
            self.link.send(
                requests.prediction_return_open(
                    request_id=RequestId(message.request_id),
                    session_id=SessionId(message.session_id),
                )
            )

    def next_reply(self, message: StageMessage, downstream: ReplyLink) -> StageReply:
        """The next prediction of a request, or a late ACK from downstream.

        Raises:
            StageFailureError: A stage failed or is lost, or nothing came in time.
        """
        begun = time.monotonic()
        while True:
            if self.link is None:
                self._adopt(message)
            for link in self._links(downstream):
                reply = link.next_buffered()
                if reply is not None:
                    return reply
            left = self._deadline(begun) - time.monotonic()
            if left <= 0:
                raise self._timed_out(message)
            self._pump_readable(downstream, left)

    def check_idle(self) -> None:
        """Notice that the final stage closed the return, or spoke unasked.

        Raises:
            StageFailureError: It did.
        """
        if self.link is not None and wait_readable([self.link], 0):
            self._pump(self.link)
            if self.link.next_buffered() is not None:
                raise StageFailureError(
                    FailureCode.PROTOCOL,
                    self.link.peer_index,
                    f"{self.link.peer_name} sent a prediction nobody waits for",
                )

    def cancel(self) -> None:
        """Shorten the wait for a prediction; from any thread."""
        self._is_cancelled = True
        os.eventfd_write(self._wake, 1)

    def end(self, message: StageMessage) -> None:
        """A request is over; the connection stays for the next one."""
        self._node.waiters.forget(flow_key(message))

    def close(self) -> None:
        """Close the connection."""
        if self.link is not None:
            self.link.close()
            self.link = None
        os.close(self._wake)

    def _dial(self) -> ReplyLink | None:
        address, index = self._node.final_address, self._node.final_index
        assert address is not None
        try:
            connection = connect_to_stage(
                self._node,
                address,
                index,
                return_purpose(self._node.index, index),
                patience_s=0,
            )
        except StageFailureError:
            return None  # the final stage dials instead, or says why it cannot
        return ReplyLink(connection, index, peer_name=self._node.name_of(index))

    def _adopt(self, message: StageMessage) -> None:
        connection = self._node.waiters.take(flow_key(message))
        if connection is not None:
            index = self._node.final_index
            self.link = ReplyLink(
                connection, index, peer_name=self._node.name_of(index)
            )

    def _links(self, downstream: ReplyLink) -> list[ReplyLink]:
        return [downstream] if self.link is None else [self.link, downstream]

    def _pump_readable(self, downstream: ReplyLink, left: float) -> None:
        links = self._links(downstream)
        if self.link is None:
            left = min(left, ADOPTION_POLL_SECONDS)
        readable = wait_readable([*links, _Descriptor(self._wake)], left)
        if self._wake in readable:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        # Downstream last: a failure there names the stage that is really lost.
        for link in reversed(links):
            if link.fileno() in readable:
                self._pump(link)

    def _pump(self, link: ReplyLink) -> None:
        try:
            link.pump()
        except StageFailureError as error:
            if link is self.link:
                raise StageFailureError(
                    error.code,
                    error.stage_index,
                    "direct prediction return closed before the next reply: "
                    f"{error.message}",
                ) from error
            raise

    def _deadline(self, begun: float) -> float:
        timings = self._node.timings
        return begun + (timings.cancel if self._is_cancelled else timings.reply)

    def _timed_out(self, message: StageMessage) -> StageFailureError:
        if self._is_cancelled:
            return StageFailureError(
                FailureCode.CANCELLED,
                self._node.index,
                "cancelled; the chain did not answer any more",
            )
        return StageFailureError(
            FailureCode.TIMEOUT,
            self._node.final_index,
            f"no prediction for position {message.pos_start} within "
            f"{self._node.timings.reply:g} s: a stage between "
            f"{self._node.name_of(1)} and "
            f"{self._node.name_of(self._node.final_index)} hangs",
        )


class _Descriptor:
    """A bare descriptor among things to poll."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor


class FinalReturn:
    """The final stage's end.

    Args:
        node: The final stage.
    """

    def __init__(self, node: StageNode) -> None:
        self._node = node
        self._flows: set[FlowKey] = set()
        self._dialled: ReturnSink | None = None
        self._may_use_upstream = node.index == 1

    def open(self, message: StageMessage) -> None:
        """Make sure that predictions of this request have a way.

        Raises:
            StageFailureError: They have none.
        """
        key = flow_key(message)
        self._flows.add(key)
        if self._node.sinks.wait(key, self._node.timings.sink) is not None:
            return
        try:
            self._dial_first(key, message)
        except StageFailureError as error:
            if self._may_use_upstream:
                return
            raise StageFailureError(
                FailureCode.STAGE_LOST,
                self._node.index,
                "prediction return unavailable: stage 0 opened none to "
                f"{self._node.config.stage_id} at {self._node.config.bind_addr}, and "
                f"{self._node.config.stage_id} cannot open one: {error.message}",
            ) from error

    def send(
        self,
        message: StageMessage,
        reply: StageReply,
        upstream: Callable[[StageReply], None],
    ) -> None:
        """Answer stage 0.

        Raises:
            StageFailureError: There is no way, or it broke.
        """
        sink = self._node.sinks.find(flow_key(message))
        if sink is None and self._may_use_upstream:
            upstream(reply)
            return
        if sink is None:
            raise StageFailureError(
                FailureCode.PROTOCOL,
                self._node.index,
                "prediction return unavailable: no ConfigureGeneration opened one",
            )
        try:
            sink.send(reply)
        except OSError as error:
            raise StageFailureError(
                FailureCode.STAGE_LOST,
                0,
                f"stage 0 does not take its prediction any more: {error}",
            ) from error

    def fail(self, failure: StageFailureError) -> None:
        """Send a failure to every flow of this lane that still has a way."""
        words = Failure(failure.code, failure.stage_index, failure.message)
        for key in self._flows:
            sink = self._node.sinks.find(key)
            if sink is not None:
                # Its upstream gets the same words; a broken return is no news.
                with contextlib.suppress(OSError):
                    sink.send(words)

    def end(self, message: StageMessage) -> None:
        """A request is over."""
        self._flows.discard(flow_key(message))
        self._node.sinks.drop(flow_key(message))

    def close(self) -> None:
        """Forget the flows of this lane and close what it dialled."""
        for key in self._flows:
            self._node.sinks.drop(key)
        if self._dialled is not None:
            self._dialled.connection.close()

    def _dial_first(self, key: FlowKey, message: StageMessage) -> None:
        address = self._node.first_address
        if address is None:
            raise StageFailureError(
                FailureCode.STAGE_LOST,
                0,
                "no address of stage 0 is known; give --topology",
            )
        if self._dialled is None:
            connection = connect_to_stage(
                self._node,
                address,
                0,
                return_purpose(self._node.index, 0),
                patience_s=0,
            )
            self._dialled = ReturnSink(connection)
        link = ReplyLink(self._dialled.connection, 0, peer_name=self._node.name_of(0))
        link.send(
            requests.prediction_return_open(
                request_id=RequestId(message.request_id),
                session_id=SessionId(message.session_id),
            )
        )
        self._node.sinks.bind(key, self._dialled)
