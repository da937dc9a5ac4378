"""One upstream connection in its own thread: messages in, replies out.

The thread polls the upstream together with the links downstream, so that a stage that
dies while nothing is asked of it is noticed at once and named to whoever is upstream.
At a message boundary it waits for ever (keep-alive watches the peer); once a message
has begun, the rest has to come within the frame deadline.
"""

from __future__ import annotations

import contextlib
import logging
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
    close_after_last_words,
    interrupt,
    receive,
    send_buffers,
)
from skippyd.stage.lane import StageLane
from skippyd.stage.links import RECEIVE_BYTES, wait_readable
from skippyd.stage.predictions import ReturnSink


if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply
    from skippyd.stage.links import Pollable
    from skippyd.stage.node import StageNode

logger = logging.getLogger("skippyd.stage")


@attrs.define(eq=False)
class UpstreamConnection:
    """A connection of an upstream, from after its ready word to its end.

    Args:
        node: The stage.
        connection: The socket, blocking and prepared.
        peer: Who dialled, for messages people read.
        first_bytes: What arrived behind the opening already.
    """

    node: StageNode
    connection: socket.socket
    peer: str
    first_bytes: bytes = b""
    _lane: StageLane | None = None
    _is_interrupted: bool = False

    def run(self) -> None:
        """Serve the connection to its end; returns whatever happened."""
        try:
            self._serve()
        except StageFailureError as error:
            self._fail(error)
        except (RemoteProtocolError, LocalProtocolError) as error:
            self._fail(
                StageFailureError(FailureCode.PROTOCOL, self.node.index, str(error))
            )
        except OSError as error:
            if not self._is_interrupted:
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
            if self._lane is not None:
                self._lane.close()
            close_after_last_words(self.connection)

    def interrupt(self) -> None:
        """Make the thread end now; from any thread."""
        self._is_interrupted = True
        interrupt(self.connection)
        if self._lane is not None:
            self._lane.interrupt()

    def _serve(self) -> None:
        parser = MessageParser(self.node.runtime.width)
        parser.receive_data(self.first_bytes)
        message = self._next(parser)
        if message is None:
            return
        if message.kind is MessageKind.PREDICTION_RETURN_OPEN:
            self._serve_return(message, parser)
            return
        self._lane = StageLane(node=self.node, reply=self._send)
        self._lane.open(patience_s=self.node.timings.connect)
        while message is not None:
            self._lane.handle(message)
            message = self._next(parser)

    def _serve_return(self, message: StageMessage, parser: MessageParser) -> None:
        """Let this connection carry predictions: as a sink, or to a waiting lane."""
        if self.node.is_final and not self.node.is_first:
            self._serve_sink(message, parser)
            return
        key = (message.request_id, message.session_id)
        if self.node.is_first and self.node.waiters.offer(key, self.connection.dup()):
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
                self.node.sinks.bind((message.request_id, message.session_id), sink)
                message = self._next(parser)
        finally:
            self.node.sinks.drop_connection(sink)

    def _next(self, parser: MessageParser) -> StageMessage | None:
        """The next message, None at a clean end of the stream."""
        message = parser.next_message()
        deadline = None if parser.at_boundary else self._frame_deadline()
        while message is None:
            self._await_bytes(deadline)
            data = receive(self.connection, RECEIVE_BYTES)
            if not data:
                parser.receive_eof()
                return None
            parser.receive_data(data)
            if deadline is None:
                deadline = self._frame_deadline()
            message = parser.next_message()
            if message is None and time.monotonic() > deadline:
                raise RemoteProtocolError(
                    f"{self.peer} began a message and did not finish it within "
                    f"{self.node.timings.frame:g} s"
                )
        return message

    def _frame_deadline(self) -> float:
        return time.monotonic() + self.node.timings.frame

    def _await_bytes(self, deadline: float | None) -> None:
        """Return when the upstream has bytes; take what comes from downstream."""
        if deadline is not None:
            return  # in the middle of a message: the socket's own deadline watches
        lane = self._lane
        links = lane.watched() if lane is not None else []
        if not links and not self.node.config.lane_poll_us:
            wait_readable([self.connection], None)
            return
        upstream = self.connection.fileno()
        while upstream not in (readable := self._poll([self.connection, *links])):
            assert lane is not None
            if readable:
                lane.on_readable()
                links = lane.watched()

    def _poll(self, sources: Sequence[Pollable]) -> list[int]:
        spin_until = time.perf_counter_ns() + self.node.config.lane_poll_us * 1000
        while self.node.config.lane_poll_us and time.perf_counter_ns() < spin_until:
            readable = wait_readable(sources, 0)
            if readable:
                return readable
        return wait_readable(sources, None)

    def _send(self, reply: StageReply) -> None:
        send_buffers(self.connection, [encode_reply(reply)])

    def _fail(self, failure: StageFailureError) -> None:
        """Say upstream, and on open prediction returns, why this lane ends."""
        if self._is_interrupted:
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
