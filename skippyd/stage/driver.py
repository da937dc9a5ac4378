"""Driving a chain: a prompt in, tokens out, over whatever reaches stage 0.

The driver speaks the wire protocol to stage 0, either to a lane in the same process
(stage 0's own OpenAI server) or over a connection (verify, bench, a diagnostic
client). It knows one session at a time.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Protocol, TypedDict

import attrs

from skippyd.core.wire import requests
from skippyd.errors import FailureCode, StageFailureError
from skippyd.ids import RequestId, SessionId


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skippyd.core.wire.messages import StageMessage
    from skippyd.core.wire.replies import StageReply, StageStats
    from skippyd.core.wire.sampling import SamplingBlock
    from skippyd.stage.lane import StageLane
    from skippyd.stage.links import ReplyLink

PREFILL_CREDIT = 3


class _Ids(TypedDict):
    request_id: RequestId
    session_id: SessionId


class ChainTransport(Protocol):
    """How messages reach stage 0 and replies come back."""

    def send(self, message: StageMessage) -> None:
        """Hand a message to stage 0."""
        ...

    def decode_next(self, session_id: int, position: int, token: int) -> int | None:
        """Decode the token that stage 0 has made itself ready for.

        Returns:
            The token drawn after it. None, with nothing done, if it is another one or
            the way to stage 0 knows nothing of the kind: then it takes a message.
        """
        ...

    def receive(self) -> StageReply:
        """The next reply, in the order of the messages."""
        ...


class LaneTransport:
    """A lane of this very process: a message is handled in the caller's thread.

    Args:
        make_lane: Builds the lane around the function its replies go to.
    """

    def __init__(
        self, make_lane: Callable[[Callable[[StageReply], None]], StageLane]
    ) -> None:
        self._replies: collections.deque[StageReply] = collections.deque()
        self.lane = make_lane(self._replies.append)

    def send(self, message: StageMessage) -> None:
        """Let the lane do what the message asks."""
        self.lane.handle(message)

    def decode_next(self, session_id: int, position: int, token: int) -> int | None:
        """Let the lane decode the token it is ready for."""
        return self.lane.foreseen.decode(session_id, position, token)

    def receive(self) -> StageReply:
        """The reply the lane has given."""
        if not self._replies:
            raise StageFailureError(
                FailureCode.INTERNAL, self.lane.node.index, "the lane gave no reply"
            )
        return self._replies.popleft()

    def forget_replies(self) -> None:
        """Drop the replies to messages whose sender has given up."""
        self._replies.clear()


@attrs.define(eq=False)
class LinkTransport:
    """A connection to stage 0.

    Args:
        link: The connection.
        timeout_s: How long a reply may take.
    """

    link: ReplyLink
    timeout_s: float

    def send(self, message: StageMessage) -> None:
        """Write the message."""
        self.link.send(message)

    def decode_next(self, _session_id: int, _position: int, _token: int) -> None:
        """Over a connection every token takes a message."""

    def receive(self) -> StageReply:
        """Wait for the next reply."""
        return self.link.wait_reply(self.timeout_s, "the driver")


def _ids_of(driver: ChainDriver) -> _Ids:
    return {
        "request_id": RequestId(driver.request_id),
        "session_id": SessionId(driver.session_id),
    }


@attrs.define(eq=False, kw_only=True)
class ChainDriver:
    """One session on a chain.

    Args:
        transport: The way to stage 0.
        request_id: Identity of the request on the wire.
        session_id: Identity of the session.
        chunk: Prefill chunk in tokens.
    """

    transport: ChainTransport
    request_id: int
    session_id: int
    chunk: int
    prompt_token_count: int = 0
    length: int = 0
    stats: StageStats | None = None
    _pending: int = 0
    _step: int = 0
    _ids: _Ids = attrs.Factory(_ids_of, takes_self=True)

    def prefill(
        self,
        tokens: Sequence[int],
        *,
        before_chunk: Callable[[], None] = lambda: None,
    ) -> None:
        """Compute tokens without drawing, chunk by chunk.

        Args:
            tokens: What follows the session's present end.
            before_chunk: Called before each chunk; may raise to stop there.
        """
        self.prompt_token_count = self.length + len(tokens)
        for start in range(0, len(tokens), self.chunk):
            before_chunk()
            self._prefill_chunk(tuple(tokens[start : start + self.chunk]))

    def configure(self, sampling: SamplingBlock | None) -> None:
        """Set how tokens are drawn, and make sure predictions have a way back."""
        self._control(
            requests.configure_generation(
                **self._ids,
                prompt_token_count=self.prompt_token_count,
                sampling=sampling,
            )
        )

    def decode(self, token: int) -> int:
        """Compute one token and return the one drawn after it."""
        drawn: int | None = None
        if not self._pending:
            drawn = self.transport.decode_next(self.session_id, self.length, token)
        if drawn is None:
            drawn = self._decode_by_message(token)
        self.length += 1
        self._step += 1
        return drawn

    def trim(self, keep: int) -> None:
        """Forget everything from position `keep` on."""
        self._control(requests.trim_session(**self._ids, keep_token_count=keep))
        self.length = min(self.length, keep)

    def stop(self) -> None:
        """End the session on every stage; the lane stays good for another."""
        self._control(requests.stop(**self._ids))
        self.length = 0

    def abandon(self, transport: LaneTransport) -> None:
        """End the session after a message failed at stage 0 itself.

        Nothing of that message went downstream, so the lane stays in step with the
        chain and good for another session; only replies to us are out of step.
        """
        self._pending = 0
        transport.send(requests.stop(**self._ids))
        transport.forget_replies()
        self.length = 0

    def drain(self) -> None:
        """Take the ACKs of all prefill chunks."""
        while self._pending:
            self._pending -= 1
            self.transport.receive()

    def _decode_by_message(self, token: int) -> int:
        self.transport.send(
            requests.decode(
                **self._ids,
                pos_start=self.length,
                token=token,
                prompt_token_count=self.prompt_token_count,
                decode_step=self._step,
            )
        )
        self.drain()
        reply = self.transport.receive()
        if not reply.tokens:
            raise StageFailureError(
                FailureCode.PROTOCOL, 0, "stage 0 acknowledged what asks for a token"
            )
        return reply.predicted

    def _prefill_chunk(self, tokens: tuple[int, ...]) -> None:
        while self._pending >= PREFILL_CREDIT:
            self._pending -= 1
            self.transport.receive()
        self.transport.send(
            requests.prefill(
                **self._ids,
                pos_start=self.length,
                tokens=tokens,
                prompt_token_count=self.prompt_token_count,
            )
        )
        self._pending += 1
        self.length += len(tokens)

    def _control(self, message: StageMessage) -> None:
        self.drain()
        self.transport.send(message)
        self.stats = self.transport.receive().stats
