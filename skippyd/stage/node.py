"""What all lanes of one stage process share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import attrs

from skippyd.core.telemetry.names import Attribute
from skippyd.net.tcp import Address
from skippyd.stage.lane_board import LaneBoard
from skippyd.stage.predictions import ReturnSinks, ReturnWaiters
from skippyd.stage.span_outbox import SpanOutbox


if TYPE_CHECKING:
    from skippyd.config.endpoints import Endpoint
    from skippyd.config.stage import StageConfig
    from skippyd.config.topology import StageTopology
    from skippyd.runtime.interface import StageRuntime
    from skippyd.stage.tls import StageTls

HOP_MARGIN_SECONDS = 0.5
OVERDUE_REPLIES = 2
"""A lane at one message for longer than so many answers may take is overdue."""


@attrs.frozen(kw_only=True)
class StageTimings:
    """Deadlines of everything a lane waits for, in seconds.

    Args:
        connect: A downstream may take this long to appear.
        connect_attempt: One attempt to connect.
        ready: A stage may take this long to say that it is ready.
        frame: A message once begun, and any write, may stall this long.
        reply: An answer of the chain may take this long.
        sink: The final stage waits this long for stage 0's return connection.
        cancel: A cancelled request may wait this long for its last prediction.
    """

    connect: float = 60.0
    connect_attempt: float = 2.0
    ready: float = 20.0
    frame: float = 30.0
    reply: float = 60.0
    sink: float = 0.25
    cancel: float = 2.0


@attrs.frozen(kw_only=True)
class FlowControl:
    """How many prefill frames may be under way.

    Args:
        max_inflight: Frames the background writer may hold.
        reply_credit_limit: Unanswered frames; None is one less than max_inflight.
        async_forward: Whether a background writer sends prefill frames.
    """

    max_inflight: int = 4
    reply_credit_limit: int | None = None
    async_forward: bool = True

    @property
    def credit(self) -> int:
        """Prefill frames that may wait for their ACK; 0 waits for each."""
        if self.reply_credit_limit is not None:
            return self.reply_credit_limit
        return self.max_inflight - 1


def _tls_of(node: StageNode) -> StageTls | None:
    if node.config.tls is None:
        return None
    from skippyd.stage.tls import StageTls  # noqa: PLC0415 - costs memory, see there

    return StageTls.of(node.config)


def _board_of(node: StageNode) -> LaneBoard:
    return LaneBoard(
        node.spans,
        {
            Attribute.STAGE_ID: node.config.stage_id,
            Attribute.STAGE_INDEX: node.config.stage_index,
        },
        overdue_s=OVERDUE_REPLIES * node.reply_patience_s,
    )


@attrs.define(kw_only=True)
class StageNode:
    """One loaded stage.

    Args:
        config: Its configuration.
        runtime: Its layers.
        topology: The whole chain, when it was told.
        timings: Deadlines.
        flow: Prefill flow control.
        tls: Whom it trusts, when its configuration asks for TLS.
        spans: What it has measured and nobody has taken yet.
        board: What its lanes are at.

    Raises:
        ConfigError: A certificate or the key cannot be used.
    """

    config: StageConfig
    runtime: StageRuntime
    topology: StageTopology | None = None
    timings: StageTimings = attrs.Factory(StageTimings)
    flow: FlowControl = attrs.Factory(FlowControl)
    tls: StageTls | None = attrs.Factory(_tls_of, takes_self=True)
    sinks: ReturnSinks = attrs.Factory(ReturnSinks)
    waiters: ReturnWaiters = attrs.Factory(ReturnWaiters)
    spans: SpanOutbox = attrs.Factory(SpanOutbox)
    board: LaneBoard = attrs.Factory(_board_of, takes_self=True)
    messages: int = 0
    _lock: threading.Lock = attrs.Factory(threading.Lock)

    @property
    def open_lanes(self) -> int:
        """Lanes that are open: of upstreams, and stage 0's own."""
        return len(self.board)

    @property
    def index(self) -> int:
        """Place in the chain."""
        return self.config.stage_index

    @property
    def is_first(self) -> bool:
        """Whether token ids enter here."""
        return self.config.stage_index == 0

    @property
    def is_final(self) -> bool:
        """Whether tokens are drawn here."""
        return self.config.downstream is None

    @property
    def reply_patience_s(self) -> float:
        """How long a lane here waits for an answer of the chain.

        Longer the further upstream: the stage next to the one that hangs speaks first
        and can name it.
        """
        between = max(0, self.final_index - self.index - 1)
        return self.timings.reply + HOP_MARGIN_SECONDS * between

    @property
    def final_address(self) -> Address | None:
        """Where the final stage listens, when the topology tells."""
        if self.topology is None:
            return None
        return address_of(self.topology.final_stage.endpoint)

    @property
    def final_index(self) -> int:
        """Index of the final stage as far as this stage knows."""
        if self.topology is not None:
            return self.topology.final_stage.stage_index
        return self.index if self.config.downstream is None else self.index + 1

    @property
    def first_address(self) -> Address | None:
        """Where stage 0 listens, when topology or upstream tell."""
        if self.topology is not None:
            return address_of(self.topology.stages[0].endpoint)
        upstream = self.config.upstream
        if upstream is not None and upstream.stage_index == 0:
            return address_of(upstream.endpoint)
        return None

    def name_of(self, index: int) -> str:
        """A stage's id for messages people read."""
        for peer in (self.config.upstream, self.config.downstream):
            if peer is not None and peer.stage_index == index:
                return peer.stage_id
        if self.topology is not None and 0 <= index < len(self.topology.stages):
            return self.topology.stages[index].stage_id
        return f"stage {index}"

    def count_message(self) -> None:
        """Count a message that is about to be handled."""
        with self._lock:
            self.messages += 1


def address_of(endpoint: Endpoint) -> Address:
    """The address of a configured endpoint."""
    return Address(endpoint.host, endpoint.port)
