"""One end of a connection that carries replies: the way downstream, and predictions.

A link belongs to one lane thread, which reads it; the forwarder may write it too,
unless it is under TLS.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.wire.decode import ReplyParser
from skippyd.core.wire.encode import encode_message
from skippyd.core.wire.replies import Failure
from skippyd.errors import FailureCode, RemoteProtocolError, StageFailureError
from skippyd.net.tcp import RECEIVE_BYTES, interrupt, receive, rest_of, send_buffers
from skippyd.stage.waiting import PlainWaiter, wait_readable


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply
    from skippyd.net.tcp import StageSocket
    from skippyd.stage.waiting import Waiter


@attrs.define(eq=False)
class ReplyLink:
    """A connection to another stage on which replies come back.

    Args:
        connection: The connected, ready socket.
        peer_index: The stage at the other end.
        peer_name: Its name for messages people read.
    """

    connection: StageSocket
    peer_index: int
    peer_name: str = attrs.field(kw_only=True)
    _parser: ReplyParser = attrs.Factory(ReplyParser)

    def fileno(self) -> int:
        """Descriptor to poll."""
        return self.connection.fileno()

    @property
    def is_for_one_thread(self) -> bool:
        """Whether the thread that reads must write as well: so it is under TLS."""
        return not isinstance(self.connection, socket.socket)

    def send(self, message: StageMessage) -> None:
        """Write a message.

        Raises:
            StageFailureError: The stage is lost; its own last words if it had any.
        """
        self.send_encoded(encode_message(message))

    def send_encoded(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write the buffers of an encoded message; raises as `send`."""
        try:
            send_buffers(self.connection, buffers)
        except OSError as error:
            raise self.write_failure(error) from error

    def send_rest(
        self, buffers: Sequence[bytearray | memoryview], sent_bytes: int
    ) -> None:
        """Write what is left of an encoded message; raises as `send`."""
        if sent_bytes != sum(map(len, buffers)):
            self.send_encoded(rest_of(buffers, sent_bytes))

    def write(self, message: StageMessage) -> None:
        """Write a message and leave the reason of a failure to whoever reads.

        Raises:
            OSError: The connection broke, or the peer stopped reading.
        """
        send_buffers(self.connection, encode_message(message))

    def write_failure(self, error: OSError) -> StageFailureError:
        """Why a write failed: the stage's last words, or that it is lost."""
        return self._last_words() or self._lost(str(error))

    @property
    def is_idle(self) -> bool:
        """Whether nothing that arrived waits to be taken, or for its end."""
        return self._parser.at_boundary

    def next_buffered(self) -> StageReply | None:
        """A reply that has already arrived whole.

        Raises:
            StageFailureError: It is a failure, or no reply at all.
        """
        try:
            reply = self._parser.next_value()
        except RemoteProtocolError as error:
            raise self._broken(str(error)) from error
        if isinstance(reply, Failure):
            raise StageFailureError(reply.code, reply.stage_index, reply.text)
        return reply

    def receive(self, data: bytes) -> None:
        """Take bytes in that somebody else has read from the connection."""
        self._parser.receive_data(data)

    def pump(self) -> None:
        """Read what has arrived; call when the descriptor is readable.

        Raises:
            StageFailureError: The stage closed the connection.
        """
        try:
            data = receive(self.connection, RECEIVE_BYTES)
        except OSError as error:
            raise self._end(str(error)) from error
        if data is None:
            return
        if not data:
            raise self._end("it closed the connection")
        self._parser.receive_data(data)

    def wait_reply(
        self, timeout_s: float, waited_for: str, waiter: Waiter | None = None
    ) -> StageReply:
        """Wait for the next reply.

        Args:
            timeout_s: How long.
            waited_for: What it answers, for the failure.
            waiter: Where to wait; a lane gives its signal.

        Raises:
            StageFailureError: None came in time, or the stage is lost.
        """
        waiter = PlainWaiter() if waiter is None else waiter
        until = time.monotonic() + timeout_s
        while (reply := self.next_buffered()) is None:
            if self.fileno() in waiter.wait([self], until):
                self.pump()
            elif time.monotonic() >= until:
                raise StageFailureError(
                    FailureCode.TIMEOUT,
                    self.peer_index,
                    f"{self.peer_name} did not answer {waited_for} within "
                    f"{timeout_s:g} s; it hangs or is overloaded",
                )
        return reply

    def interrupt(self) -> None:
        """Wake the thread that waits on this link."""
        interrupt(self.connection)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _last_words(self) -> StageFailureError | None:
        """The failure a stage sent before its end of the connection broke."""
        try:
            while self.next_buffered() is None:
                if not wait_readable([self], 0):
                    return None
                self.pump()
        except StageFailureError as error:
            return error
        return None

    def _end(self, reason: str) -> StageFailureError:
        """Why the stage sends no more: its own words if they arrived before the end."""
        try:
            while self.next_buffered() is not None:
                continue  # an ACK of work that is lost all the same
        except StageFailureError as error:
            return error
        is_cut = not self._parser.at_boundary
        return self._lost(reason + (" in the middle of a reply" if is_cut else ""))

    def _lost(self, reason: str) -> StageFailureError:
        return StageFailureError(
            FailureCode.STAGE_LOST,
            self.peer_index,
            f"{self.peer_name} is lost: {reason}; see its log, and start it again",
        )

    def _broken(self, reason: str) -> StageFailureError:
        return StageFailureError(
            FailureCode.PROTOCOL,
            self.peer_index,
            f"{self.peer_name} broke the protocol: {reason}",
        )
