"""The final stage's end of the direct prediction return, as one lane sees it.

Stage 0 normally has opened a connection here before it configures a generation. If
none came, the final stage dials stage 0; with two stages the upstream connection is
the last resort. A ConfigureGeneration is acknowledged only once a path is open
(contract, "Wire").
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from skippyd.core.wire import requests
from skippyd.core.wire.auth import return_purpose
from skippyd.core.wire.replies import Failure
from skippyd.errors import FailureCode, StageFailureError
from skippyd.ids import RequestId, SessionId
from skippyd.stage.dialling import connect_to_stage
from skippyd.stage.links import ReplyLink
from skippyd.stage.predictions import ReturnSink, flow_key


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply
    from skippyd.stage.node import StageNode
    from skippyd.stage.predictions import FlowKey
    from skippyd.stage.waiting import LaneSignal


class FinalReturn:
    """Where the final stage's lane sends its predictions.

    Args:
        node: The final stage.
        signal: Where the lane's thread waits.
    """

    def __init__(self, node: StageNode, signal: LaneSignal) -> None:
        self._node = node
        self._signal = signal
        self._flows: set[FlowKey] = set()
        self._dialled: ReturnSink | None = None
        self._may_use_upstream = node.index == 1
        self._uses_upstream = False

    def open(self, message: StageMessage) -> None:
        """Make sure that predictions of this request have a way.

        Raises:
            StageFailureError: They have none.
        """
        key = flow_key(message)
        self._flows.add(key)
        # Once stage 0 has turned out not to dial, its next requests need not wait.
        known = self._dialled is not None or self._uses_upstream
        patience_s = 0.0 if known else self._patience_s
        if self._node.sinks.wait(key, patience_s) is not None or self._uses_upstream:
            return
        try:
            self._dial_first(key, message)
        except StageFailureError as error:
            if error.code is FailureCode.CANCELLED:
                raise
            if self._may_use_upstream:
                self._uses_upstream = True
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
            raise self._no_way(message)
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
        self._flows.clear()
        if self._dialled is not None:
            self._dialled.connection.close()
            self._dialled = None

    @property
    def _patience_s(self) -> float:
        """How long stage 0 may take to dial: longer when nothing else is left."""
        timings = self._node.timings
        has_other_way = self._may_use_upstream or self._node.first_address is not None
        return timings.sink if has_other_way else timings.connect_attempt

    def _no_way(self, message: StageMessage) -> StageFailureError:
        if flow_key(message) in self._flows:
            return StageFailureError(
                FailureCode.STAGE_LOST,
                self._node.index,
                "prediction return unavailable: the one that stage 0 had opened to "
                f"{self._node.config.stage_id} has ended",
            )
        return StageFailureError(
            FailureCode.PROTOCOL,
            self._node.index,
            "prediction return unavailable: no ConfigureGeneration opened one to "
            f"{self._node.config.stage_id}",
        )

    def _dial_first(self, key: FlowKey, message: StageMessage) -> None:
        # One connection serves all requests of a lane: stage 0's lane owns its end and
        # reads predictions there, so it is opened once, by the first request.
        if self._dialled is None:
            self._dialled = self._connect_to_first()
            name = self._node.name_of(0)
            ReplyLink(self._dialled.connection, 0, peer_name=name).send(
                requests.prediction_return_open(
                    request_id=RequestId(message.request_id),
                    session_id=SessionId(message.session_id),
                )
            )
        self._node.sinks.bind(key, self._dialled)
        self._node.sinks.wait(key, 0.0)  # it is this lane's, not pending

    def _connect_to_first(self) -> ReturnSink:
        address = self._node.first_address
        if address is None:
            raise StageFailureError(
                FailureCode.STAGE_LOST,
                0,
                "no address of stage 0 is known; give --topology",
            )
        connection = connect_to_stage(
            self._node,
            address,
            0,
            return_purpose(self._node.index, 0),
            patience_s=0,
            waiter=self._signal,
        )
        return ReturnSink(connection)
