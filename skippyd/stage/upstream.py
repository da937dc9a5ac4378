"""One upstream connection in its own thread: messages in, replies out.

The thread polls the upstream together with the links downstream, so that a stage that
dies while nothing is asked of it is noticed at once and named to whoever is upstream.
At a message boundary it waits for ever (keep-alive watches the peer); once a message
has begun, the rest has to come within the frame deadline.
"""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.wire.decode import MessageParser
from skippyd.core.wire.encode import encode_reply
from skippyd.core.wire.kinds import MessageKind
from skippyd.core.wire.replies import Failure
from skippyd.errors import (
    FailureCode,
    LocalProtocolError,
    RemoteProtocolError,
    StageFailureError,
)
from skippyd.net.tcp import (
    RECEIVE_BYTES,
    close_after_last_words,
    interrupt,
    receive,
    send_buffers,
)
from skippyd.stage.lane import StageLane
from skippyd.stage.opening import open_under_tls
from skippyd.stage.predictions import OfferedReturn, ReturnSink, flow_key
from skippyd.stage.waiting import LaneSignal


if TYPE_CHECKING:
    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply
    from skippyd.net.tcp import StageSocket
    from skippyd.stage.node import StageNode

logger = logging.getLogger("skippyd.stage")


def _signal_of_node(upstream: UpstreamConnection) -> LaneSignal:
    return LaneSignal.of(upstream.node)


@attrs.define(eq=False)
class UpstreamConnection:
    """A connection of an upstream, from after its ready word to its end.

    Args:
        node: The stage.
        connection: The socket, blocking and prepared.
        peer: Who dialled, for messages people read.
        first_bytes: What arrived behind the opening already.
        purpose: What its token proved it is for; None where no token is demanded.
        opening_s: How long its opening under TLS may take; None when it is open.
    """

    node: StageNode
    connection: StageSocket
    peer: str = attrs.field(kw_only=True)
    first_bytes: bytes = attrs.field(default=b"", kw_only=True)
    purpose: str | None = attrs.field(default=None, kw_only=True)
    opening_s: float | None = attrs.field(default=None, kw_only=True)
    _signal: LaneSignal = attrs.Factory(_signal_of_node, takes_self=True)
    _lane: StageLane | None = None
    _is_given_away: bool = False

    def run(self) -> None:
        """Serve the connection to its end; returns whatever happened."""
        try:
            if self.opening_s is None or self._open(self.opening_s):
                self._serve()
        except StageFailureError as error:
            self._fail(error)
        except (RemoteProtocolError, LocalProtocolError) as error:
            self._fail(
                StageFailureError(FailureCode.PROTOCOL, self.node.index, str(error))
            )
        except OSError as error:
            if not self._signal.is_interrupted:
                logger.warning("connection of %s broke: %s", self.peer, error)
        except Exception as error:  # the guard of one connection: others go on
            logger.exception("connection of %s ended by a defect", self.peer)
            self._fail(
                StageFailureError(
                    FailureCode.INTERNAL,
                    self.node.index,
                    f"{self.node.config.stage_id}: internal error: {error!r}",
                )
            )
        finally:
            self._close()

    def interrupt(self) -> None:
        """Make the thread end now; from any thread."""
        lane = self._lane
        if lane is not None:
            lane.interrupt()
        self._signal.interrupt()
        if not self._is_given_away:
            interrupt(self.connection)

    def _close(self) -> None:
        try:
            if self._lane is not None:
                self._lane.close()
        except Exception:  # the guard of one connection: others go on
            logger.exception("the lane of %s did not close", self.peer)
        finally:
            self._signal.close()
            if not self._is_given_away:
                close_after_last_words(self.connection)

    def _open(self, seconds: float) -> bool:
        """Open the connection under TLS; say whether the dialler may go on."""
        assert isinstance(self.connection, socket.socket)
        assert self.node.tls is not None
        until = time.monotonic() + seconds
        try:
            opened = open_under_tls(
                self.node, self.node.tls, self.connection, self._signal, until
            )
        except (OSError, RemoteProtocolError) as error:
            # The dialler is told nothing but TLS's own words: it may be anyone.
            if not self._signal.is_interrupted:
                logger.warning("dropped a connection from %s: %s", self.peer, error)
            return False
        self.connection, self.purpose = opened.connection, opened.purpose
        self.first_bytes = opened.first_bytes
        return True

    def _serve(self) -> None:
        parser = MessageParser(self.node.runtime.width)
        parser.receive_data(self.first_bytes)
        message = self._next(parser)
        if message is None:
            return
        is_return = message.kind is MessageKind.PREDICTION_RETURN_OPEN
        self._check_purpose(message, is_return=is_return)
        if is_return:
            self._serve_return(message, parser)
            return
        self._lane = StageLane(node=self.node, reply=self._send, signal=self._signal)
        self._lane.open(patience_s=self.node.timings.connect)
        while message is not None:
            self._lane.handle(message)
            if parser.at_boundary:
                parser.receive_data(self._lane.foreseen.serve(self.connection))
            message = self._next(parser)

    def _check_purpose(self, message: StageMessage, *, is_return: bool) -> None:
        if self.purpose is None or self.purpose.startswith("return:") is is_return:
            return
        raise RemoteProtocolError(
            f"{message.kind.name} on a connection whose token is for {self.purpose}"
        )

    def _serve_return(self, message: StageMessage, parser: MessageParser) -> None:
        """Let this connection carry predictions: as a sink, or to a waiting lane."""
        if self.node.is_final and not self.node.is_first:
            self._serve_sink(message, parser)
            return
        if self.node.is_first:
            offered = OfferedReturn(self.connection, parser.take_unread())
            self._is_given_away = self.node.waiters.offer(flow_key(message), offered)
            if self._is_given_away:
                return
        raise StageFailureError(
            FailureCode.KIND_NOT_SERVED,
            self.node.index,
            f"PREDICTION_RETURN_OPEN (20) for request {message.request_id}, session "
            f"{message.session_id}: "
            + (
                "no lane waits for it"
                if self.node.is_first
                else f"{self.node.config.stage_id} is neither first nor final"
            ),
        )

    def _serve_sink(self, message: StageMessage | None, parser: MessageParser) -> None:
        sink = ReturnSink(self.connection)
        try:
            while message is not None:
                if message.kind is not MessageKind.PREDICTION_RETURN_OPEN:
                    raise RemoteProtocolError(
                        f"{message.kind.name} on a prediction return; it carries "
                        "PREDICTION_RETURN_OPEN only"
                    )
                self.node.sinks.bind(flow_key(message), sink)
                message = self._next(parser)
        finally:
            self.node.sinks.drop_connection(sink)

    def _next(self, parser: MessageParser) -> StageMessage | None:
        """The next message, None at a clean end of the stream."""
        is_idle = parser.at_boundary
        until = math.inf if is_idle else self._frame_deadline()
        # Nothing to parse, nothing tried: the next message is then met whole.
        while is_idle or (message := parser.next_value()) is None:
            is_idle = False
            self._await_bytes(until)
            data = receive(self.connection, RECEIVE_BYTES)
            if data == b"":
                parser.receive_eof()
                return None
            parser.receive_data(data or b"")
            if math.isinf(until):
                until = self._frame_deadline()
        return message

    def _frame_deadline(self) -> float:
        return time.monotonic() + self.node.timings.frame

    def _await_bytes(self, until: float) -> None:
        """Return when the upstream has bytes; take what comes from downstream."""
        upstream = self.connection.fileno()
        while True:
            links = [] if self._lane is None else self._lane.watched()
            readable = self._signal.wait([self.connection, *links], until)
            if upstream in readable:
                return
            if readable:
                assert self._lane is not None
                self._lane.on_readable()
            if time.monotonic() >= until:
                raise RemoteProtocolError(
                    f"{self.peer} began a message and did not finish it within "
                    f"{self.node.timings.frame:g} s"
                )

    def _send(self, reply: StageReply) -> None:
        send_buffers(self.connection, [encode_reply(reply)])

    def _fail(self, failure: StageFailureError) -> None:
        """Say upstream, and on open prediction returns, why this lane ends."""
        if self._signal.is_interrupted:
            return
        logger.warning(
            "lane of %s ends: %s (code %s)",
            self.peer,
            failure.message,
            failure.code.name,
        )
        if self._lane is not None:
            self._lane.fail_flows(failure)
        words = Failure(failure.code, failure.stage_index, failure.message)
        # The peer may be gone already; then nobody is left to be told.
        with contextlib.suppress(OSError):
            send_buffers(self.connection, [encode_reply(words)])
