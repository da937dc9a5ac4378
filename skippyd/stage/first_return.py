"""Stage 0's end of the direct prediction return, as one lane sees it.

Stage 0 dials the final stage and opens the flow there before it configures a
generation. Failing that, the final stage dials stage 0: such a connection is handed to
the lane through the stage's `ReturnWaiters`. Both may exist (a dial that was slow), so
the lane listens to every one it has.
"""

from __future__ import annotations

import logging
import socket
import time
from typing import TYPE_CHECKING

from skippyd.core.wire import requests
from skippyd.core.wire.auth import return_purpose
from skippyd.core.wire.next_token import ANY_PREDICTION, REPLY_TOKEN_AT
from skippyd.errors import FailureCode, StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.runtime.llama.next_frame import BYTES, FORESEEN, next_frame
from skippyd.stage.dialling import connect_to_stage
from skippyd.stage.links import ReplyLink
from skippyd.stage.predictions import flow_key
from skippyd.stage.waiting import wait_readable


if TYPE_CHECKING:
    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply
    from skippyd.net.tcp import StageSocket
    from skippyd.stage.node import StageNode
    from skippyd.stage.predictions import FlowKey, OfferedReturn
    from skippyd.stage.waiting import LaneSignal

logger = logging.getLogger("skippyd.stage")


class FirstReturn:
    """Where stage 0's lane gets its predictions.

    Args:
        node: Stage 0.
        signal: Where the lane's thread waits.
    """

    def __init__(self, node: StageNode, signal: LaneSignal) -> None:
        self._node = node
        self._signal = signal
        self._dialled: ReplyLink | None = None
        self._adopted: list[ReplyLink] = []
        self._expected: set[FlowKey] = set()
        self._frame = next_frame(
            len(ANY_PREDICTION),
            REPLY_TOKEN_AT,
            bytearray(),
            poll_us=node.config.lane_poll_us,
        )
        if self._frame is not None:
            self._frame.expect(ANY_PREDICTION)

    @property
    def links(self) -> list[ReplyLink]:
        """Every connection on which a prediction may come."""
        dialled = [] if self._dialled is None else [self._dialled]
        return [*dialled, *self._adopted]

    def open(self, message: StageMessage) -> None:
        """Bind a request to the connection to the final stage, dialling if needed.

        Raises:
            StageFailureError: The connection of earlier requests is lost.
        """
        self.check_idle()
        key = flow_key(message)
        self._node.waiters.expect(key, self._signal.poke)
        self._expected.add(key)
        if not self.links and self._node.final_address is not None:
            self._dialled = self._dial()
        if self._dialled is not None:
            self._dialled.send(
                requests.prediction_return_open(
                    request_id=RequestId(message.request_id),
                    session_id=SessionId(message.session_id),
                )
            )

    def next_reply(
        self, message: StageMessage, downstream: ReplyLink
    ) -> tuple[StageReply, ReplyLink]:
        """The next prediction of a request, or a late ACK, and where it came from.

        Raises:
            StageFailureError: A stage failed or is lost, or nothing came in time.
        """
        key, until = flow_key(message), time.monotonic() + self._node.reply_patience_s
        while True:
            if (offered := self._node.waiters.take(key)) is not None:
                self._adopt(offered)
            links = [*self.links, downstream]
            for link in links:
                if (reply := link.next_buffered()) is not None:
                    return self._checked(reply, link, downstream), link
            if time.monotonic() >= until:
                raise self._timed_out(message)
            readable = self._signal.wait(links, until)
            # Downstream first: a failure there names the stage that is really lost.
            for link in reversed(links):
                if link.fileno() in readable:
                    self._pump(link, downstream)

    def foreseen_token(
        self, message: StageMessage, downstream: ReplyLink
    ) -> int | None:
        """Wait for a prediction that is one token and nothing else.

        None when something else came, or nothing in time: `next_reply` tells what.
        """
        frame, links = self._frame, self.links
        if frame is None or len(links) != 1:
            return None
        direct = links[0]
        is_plain = isinstance(direct.connection, socket.socket)
        is_offered = self._node.waiters.has_offer(flow_key(message))
        if is_offered or not (is_plain and direct.is_idle and downstream.is_idle):
            return None
        until = time.monotonic() + self._node.reply_patience_s
        arrival = frame.wait(
            (direct.fileno(), downstream.fileno(), self._signal.descriptor),
            self._signal.left_ms(until),
        )
        if arrival == FORESEEN:
            return frame.token
        if arrival == BYTES:
            direct.receive(frame.received)
        return None

    def check_idle(self) -> None:
        """Notice that a return was closed, or that the final stage spoke unasked.

        Raises:
            StageFailureError: It did.
        """
        for link in self.links:
            if wait_readable([link], 0):
                self._pump(link, None)
            if link.next_buffered() is not None:
                raise StageFailureError(
                    FailureCode.PROTOCOL,
                    link.peer_index,
                    f"{link.peer_name} sent a prediction nobody waits for",
                )

    def end(self, message: StageMessage) -> None:
        """A request is over; the connections stay for the next one."""
        self._expected.discard(flow_key(message))
        self._node.waiters.forget(flow_key(message))

    def close(self) -> None:
        """Expect nothing more and close the connections."""
        for key in self._expected:
            self._node.waiters.forget(key)
        self._expected.clear()
        for link in self.links:
            link.close()
        self._dialled = None
        self._adopted.clear()

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
                waiter=self._signal,
            )
        except StageFailureError as failure:
            if failure.code is FailureCode.CANCELLED:
                raise
            # The final stage dials instead, or says to whom it cannot.
            logger.warning("no prediction return opened: %s", failure.message)
            return None
        return self._link(connection)

    def _adopt(self, offered: OfferedReturn) -> None:
        link = self._link(offered.connection)
        link.receive(offered.first_bytes)
        self._adopted.append(link)

    def _link(self, connection: StageSocket) -> ReplyLink:
        index = self._node.final_index
        return ReplyLink(connection, index, peer_name=self._node.name_of(index))

    def _checked(
        self, reply: StageReply, link: ReplyLink, downstream: ReplyLink
    ) -> StageReply:
        is_direct = link is not downstream
        if is_direct and reply.tokens:
            return reply
        # With two stages the upstream connection is the last resort for predictions.
        may_be_relayed = self._node.final_index == downstream.peer_index
        if is_direct != bool(reply.tokens) and (is_direct or not may_be_relayed):
            what = "a prediction" if reply.tokens else "an ACK"
            raise StageFailureError(
                FailureCode.PROTOCOL,
                link.peer_index,
                f"{link.peer_name} broke the protocol: it sent {what} on the wrong "
                "connection",
            )
        return reply

    def _pump(self, link: ReplyLink, downstream: ReplyLink | None) -> None:
        try:
            link.pump()
        except StageFailureError as error:
            if link is downstream:
                raise
            raise StageFailureError(
                error.code,
                error.stage_index,
                "direct prediction return closed before the next reply: "
                f"{error.message}",
            ) from error

    def _timed_out(self, message: StageMessage) -> StageFailureError:
        return StageFailureError(
            FailureCode.TIMEOUT,
            self._node.final_index,
            f"no prediction for position {message.pos_start} within "
            f"{self._node.reply_patience_s:g} s: a stage between "
            f"{self._node.name_of(1)} and "
            f"{self._node.name_of(self._node.final_index)} hangs",
        )
