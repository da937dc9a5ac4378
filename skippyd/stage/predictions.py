"""Direct prediction return: which connection carries the tokens of which request.

At the final stage a sink is the connection that stage 0 opened, or that the final
stage dialled. At stage 0 a waiter is a lane that will take over a connection the final
stage dials. Both are found by (request id, session id).
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import attrs

from skippyd.core.wire.encode import encode_reply
from skippyd.core.wire.next_token import ANY_PREDICTION, REPLY_TOKEN_AT
from skippyd.errors import FailureCode, StageFailureError
from skippyd.net.tcp import interrupt, send_buffers


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import Failure, StageReply
    from skippyd.net.tcp import StageSocket
    from skippyd.runtime.interface import NextRow

FlowKey = tuple[int, int]
PENDING_SINKS_MAX = 64
OFFERS_MAX = 4


@attrs.define(eq=False)
class ReturnSink:
    """A connection that carries predictions; several lanes may share it."""

    connection: StageSocket
    _lock: threading.Lock = attrs.Factory(threading.Lock)
    _rows: list[NextRow] = attrs.Factory(list)
    _is_lendable: bool = True
    # Not the other one: that is held while a peer that hangs takes nothing.
    _lending: threading.Lock = attrs.Factory(threading.Lock)

    def lend(self, row: NextRow) -> None:
        """Let a row answer here by itself, for as long as the flow is the only one."""
        with self._lending:
            if self._is_lendable and isinstance(self.connection, socket.socket):
                if row not in self._rows:
                    self._rows.append(row)
                head = bytearray(ANY_PREDICTION)
                row.deliver(head, REPLY_TOKEN_AT, self.connection.fileno())

    def take_back(self, *, for_good: bool = False) -> None:
        """End what was lent: a flow has ended.

        Args:
            for_good: Never lend again: the connection has ended, or several flows
                share it. A row cannot wait for a lock, and its answer must not fall
                into the middle of another.
        """
        with self._lending:
            self._is_lendable = self._is_lendable and not for_good
            for row in self._rows:
                row.deliver_nowhere()
            self._rows.clear()

    def check_whole(self, sent_bytes: int) -> None:
        """Check what a row has sent here by itself.

        Raises:
            StageFailureError: A part only. Others may have written behind it since, so
                that the connection is of no more use.
        """
        if sent_bytes != len(ANY_PREDICTION):
            interrupt(self.connection)
            raise StageFailureError(
                FailureCode.STAGE_LOST,
                0,
                f"stage 0 took {sent_bytes} of the {len(ANY_PREDICTION)} bytes of a "
                "prediction; it hangs or is overloaded",
            )

    def send(self, reply: StageReply | Failure) -> None:
        """Write one reply.

        Raises:
            OSError: The connection broke, or nobody reads it.
        """
        with self._lock:
            send_buffers(self.connection, [encode_reply(reply)])


class ReturnSinks:
    """Sinks of the final stage."""

    def __init__(self) -> None:
        self._sinks: dict[FlowKey, ReturnSink] = {}
        self._claimed: set[FlowKey] = set()
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._sinks)

    def bind(self, key: FlowKey, sink: ReturnSink) -> None:
        """Let a connection carry a flow's predictions; the newest one wins.

        Raises:
            StageFailureError: Too many flows wait.
        """
        with self._changed:
            pending = len(self._sinks) - len(self._claimed)
            if key not in self._sinks and pending >= PENDING_SINKS_MAX:
                raise StageFailureError(
                    FailureCode.PROTOCOL,
                    -1,
                    f"too many pending prediction return sinks: {PENDING_SINKS_MAX}",
                )
            earlier = self._sinks.get(key)
            if earlier is not None and earlier is not sink:
                earlier.take_back()
            self._sinks[key] = sink
            if sum(other is sink for other in self._sinks.values()) > 1:
                sink.take_back(for_good=True)
            self._changed.notify_all()

    def find(self, key: FlowKey) -> ReturnSink | None:
        """The flow's sink."""
        return self._sinks.get(key)

    def wait(self, key: FlowKey, timeout_s: float) -> ReturnSink | None:
        """The flow's sink, waited for: it comes over another connection.

        From here on it belongs to a lane and is no longer pending.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while (sink := self._sinks.get(key)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
            self._claimed.add(key)
            return sink

    def drop(self, key: FlowKey) -> None:
        """Forget a flow."""
        with self._changed:
            sink = self._sinks.pop(key, None)
            self._claimed.discard(key)
        if sink is not None:
            sink.take_back()

    def drop_connection(self, sink: ReturnSink) -> None:
        """Forget every flow of a connection that ended."""
        sink.take_back(for_good=True)
        with self._changed:
            for key in [k for k, s in self._sinks.items() if s is sink]:
                del self._sinks[key]
                self._claimed.discard(key)


@attrs.frozen
class OfferedReturn:
    """A connection that the final stage dialled.

    Args:
        connection: The connection.
        first_bytes: What was read behind the message that opened it: predictions.
    """

    connection: StageSocket
    first_bytes: bytes = b""


@attrs.define
class _Waiting:
    """One lane's wait: what to call, and what was offered."""

    wake: Callable[[], None]
    offered: list[OfferedReturn] = attrs.Factory(list)


class ReturnWaiters:
    """Lanes of stage 0 to which the final stage may dial."""

    def __init__(self) -> None:
        self._waiting: dict[FlowKey, _Waiting] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, key: FlowKey, wake: Callable[[], None]) -> None:
        """Announce that a connection for this flow may come; `wake` is called then."""
        with self._lock:
            self._waiting.setdefault(key, _Waiting(wake))

    def offer(self, key: FlowKey, offered: OfferedReturn) -> bool:
        """Give a dialled connection to the lane that waits.

        False when none does, or has enough: the connection stays the caller's.
        """
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is None or len(waiting.offered) >= OFFERS_MAX:
                return False
            waiting.offered.append(offered)
            waiting.wake()
            return True

    def take(self, key: FlowKey) -> OfferedReturn | None:
        """A connection that was offered, if one was; the wait goes on."""
        waiting = self._waiting.get(key)
        if waiting is None or not waiting.offered:
            return None
        with self._lock:
            return waiting.offered.pop()

    def has_offer(self, key: FlowKey) -> bool:
        """Whether a connection was offered that nobody took."""
        waiting = self._waiting.get(key)
        return waiting is not None and bool(waiting.offered)

    def forget(self, key: FlowKey) -> None:
        """End the wait; connections nobody took are closed."""
        with self._lock:
            waiting = self._waiting.pop(key, None)
        for offered in waiting.offered if waiting is not None else []:
            offered.connection.close()


def flow_key(message: StageMessage) -> FlowKey:
    """What a prediction return is bound to."""
    return (message.request_id, message.session_id)
