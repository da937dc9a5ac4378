"""What a row sends by itself: whole frames that a socket takes at once, or it says so."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
from typing import TYPE_CHECKING

import attrs
import numpy as np
import pytest

from skippyd.core.wire.encode import encode_reply
from skippyd.core.wire.next_token import ANY_PREDICTION, REPLY_TOKEN_AT
from skippyd.core.wire.replies import predicted_token
from skippyd.core.wire.sampling import SamplingBlock
from skippyd.model.slicing import slice_model
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.stage_runtime import load_stage_runtime
from support.one_slice import OneSlice


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.interface import StepResult

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(ctx_size=256, lane_count=2)
PROMPT = [int(t) for t in np.random.default_rng(8).integers(0, 320, 20)]
END = len(PROMPT)
HEAD = b"head....and.....tail"
TOKEN_AT = (4, 12)
SAMPLED = SamplingBlock(flags=1, seed=5, temperature=1.0)


def head_with(token: int) -> bytes:
    word = struct.pack("<i", token)
    return b"head" + word + b"and." + word + b"tail"


def activation_of(result: StepResult) -> bytes:
    return b"" if result.activation is None else bytes(result.activation)


@attrs.define
class Sending(OneSlice):
    """A stage with a session that has read the prompt, and a socket to send to."""

    ours: socket.socket
    theirs: socket.socket
    drawn: int = 0

    def begin(self, block: SamplingBlock | None = None) -> None:
        self.runtime.configure(1, block)
        self.drawn = self.step(0, PROMPT).token or 0

    def expected(self, token: int) -> tuple[bytes, int | None]:
        """Activation and token of a step in the place of the row that was run."""
        result = self.step(END, [token])
        return activation_of(result), result.token

    def arrived(self) -> bytes:
        """All that has arrived at the other end."""
        self.theirs.setblocking(False)
        pieces = []
        with contextlib.suppress(BlockingIOError):
            while piece := self.theirs.recv(1 << 16):
                pieces.append(piece)
        return b"".join(pieces)

    def fill(self) -> int:
        """Fill the way to the other end; gives the bytes that lie on it."""
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.ours.setblocking(False)
        count = 0
        for piece in (bytes(1024), b"!"):
            with contextlib.suppress(BlockingIOError):
                while True:
                    count += self.ours.send(piece)
        return count


@contextlib.contextmanager
def sending(model: GgufModel, start: int, end: int) -> Iterator[Sending]:
    runtime = load_stage_runtime(slice_model(model, start, end), SETTINGS)
    ours, theirs = socket.socketpair()
    with contextlib.closing(runtime), ours, theirs:
        made = Sending(runtime, ours, theirs)
        made.begin()
        yield made


@pytest.fixture(params=[(0, 3), (2, 4)], ids=["first", "middle"])
def stage(tiny: GgufModel, request: pytest.FixtureRequest) -> Iterator[Sending]:
    with sending(tiny, *request.param) as made:
        yield made


@pytest.fixture(params=[(3, 6), (0, 6)], ids=["final", "whole"])
def final(tiny: GgufModel, request: pytest.FixtureRequest) -> Iterator[Sending]:
    with sending(tiny, *request.param) as made:
        yield made


# ---- activations -------------------------------------------------------------------


def test_the_frame_is_head_and_activation_with_the_token_said_twice(
    stage: Sending,
) -> None:
    ready, head = stage.ready(77), bytearray(HEAD)
    ready.deliver(head, TOKEN_AT, stage.ours.fileno())
    result = ready.run(77)
    activation, _token = stage.expected(77)
    assert result is not None
    assert stage.arrived() == head_with(77) + activation
    assert result.sent_bytes == len(HEAD) + 4 * stage.runtime.width
    assert activation_of(result) == activation
    assert head == head_with(77)


def test_each_row_sends_its_own_frame(stage: Sending) -> None:
    head = bytearray(HEAD)
    for token in (5, 6, 319):
        ready = stage.ready(token)
        ready.deliver(head, TOKEN_AT, stage.ours.fileno())
        result = ready.run(token)
        assert result is not None
        assert stage.arrived() == head_with(token) + activation_of(result)
        assert ready.run(token) is None
        assert stage.arrived() == b""


def test_a_changed_head_is_sent_as_it_is_when_the_row_runs(stage: Sending) -> None:
    ready, head = stage.ready(5), bytearray(HEAD)
    ready.deliver(head, TOKEN_AT, stage.ours.fileno())
    head[:4] = b"HEAD"
    assert ready.run(5) is not None
    assert stage.arrived()[:20] == b"HEAD" + head_with(5)[4:]


def test_without_a_socket_the_head_still_says_the_token(stage: Sending) -> None:
    ready, head = stage.ready(7), bytearray(HEAD)
    ready.deliver(head, TOKEN_AT)
    result = ready.run(7)
    assert result is not None
    assert (result.sent_bytes, bytes(head)) == (0, head_with(7))


def test_a_row_that_delivers_nowhere_sends_nothing_from_then_on(
    stage: Sending,
) -> None:
    ready = stage.ready(7)
    ready.deliver(bytearray(HEAD), TOKEN_AT, stage.ours.fileno())
    assert ready.run(7) is not None
    assert len(stage.arrived()) > 0
    ready = stage.ready(8)
    ready.deliver_nowhere()
    result = ready.run(8)
    assert result is not None
    assert result.sent_bytes == 0
    assert stage.arrived() == b""
    assert activation_of(result) == activation_of(stage.step(END + 1, [8]))


def test_steps_between_rows_send_nothing(stage: Sending) -> None:
    ready = stage.ready(7)
    ready.deliver(bytearray(HEAD), TOKEN_AT, stage.ours.fileno())
    assert ready.run(7) is not None
    assert len(stage.arrived()) > 0
    stage.step(END + 1, [8])
    stage.step(END + 2, [9, 10, 11])
    assert stage.arrived() == b""


def test_a_socket_that_takes_nothing_leaves_the_frame_to_the_caller(
    stage: Sending,
) -> None:
    """The row never waits for it."""
    lying = stage.fill()
    ready = stage.ready(77)
    ready.deliver(bytearray(HEAD), TOKEN_AT, stage.ours.fileno())
    result = ready.run(77)
    assert result is not None
    assert result.sent_bytes == 0
    assert len(stage.arrived()) == lying
    assert activation_of(result) == stage.expected(77)[0]


def test_a_socket_that_takes_a_part_is_told_by_its_bytes(stage: Sending) -> None:
    stage.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    head = bytearray(HEAD + bytes(1 << 20))
    ready = stage.ready(77)
    ready.deliver(head, TOKEN_AT, stage.ours.fileno())
    result = ready.run(77)
    assert result is not None
    assert 0 < result.sent_bytes < len(head)
    assert stage.arrived() == head[: result.sent_bytes]
    assert activation_of(result) == stage.expected(77)[0]


def test_a_socket_whose_peer_is_gone_takes_nothing_and_signals_nobody(
    stage: Sending,
) -> None:
    signals: list[int] = []
    earlier = signal.signal(signal.SIGPIPE, lambda number, _at: signals.append(number))
    try:
        ready = stage.ready(77)
        stage.theirs.close()
        ready.deliver(bytearray(HEAD), TOKEN_AT, stage.ours.fileno())
        result = ready.run(77)
    finally:
        signal.signal(signal.SIGPIPE, earlier)
    assert result is not None
    assert result.sent_bytes == 0
    assert signals == []
    assert activation_of(result) == stage.expected(77)[0]


# ---- predictions -------------------------------------------------------------------


@pytest.mark.parametrize("block", [None, SAMPLED])
def test_the_final_stage_sends_the_prediction_of_the_drawn_token(
    final: Sending, block: SamplingBlock | None
) -> None:
    final.begin(block)
    token, head = final.drawn, bytearray(ANY_PREDICTION)
    for _ in range(5):
        ready = final.ready(token)
        ready.deliver(head, REPLY_TOKEN_AT, final.ours.fileno())
        result = ready.run(token)
        assert result is not None
        assert result.token is not None
        assert result.activation is None
        assert result.sent_bytes == len(ANY_PREDICTION)
        assert final.arrived() == encode_reply(predicted_token(result.token))
        token = result.token


def test_after_another_token_than_the_drawn_one_the_caller_answers(
    final: Sending,
) -> None:
    """The draw cannot have been prepared for it; the next one can."""
    other = (final.drawn + 1) % 320
    ready = final.ready(other)
    ready.deliver(bytearray(ANY_PREDICTION), REPLY_TOKEN_AT, final.ours.fileno())
    result = ready.run(other)
    assert result is not None
    assert (result.sent_bytes, final.arrived()) == (0, b"")
    assert result.token == final.expected(other)[1]
    assert result.token is not None
    result = final.ready(result.token).run(result.token)
    assert result is not None
    assert result.sent_bytes == len(ANY_PREDICTION)


def test_a_prediction_that_the_socket_does_not_take_is_the_callers(
    final: Sending,
) -> None:
    lying, token = final.fill(), final.drawn
    ready = final.ready(token)
    ready.deliver(bytearray(ANY_PREDICTION), REPLY_TOKEN_AT, final.ours.fileno())
    result = ready.run(token)
    assert result is not None
    assert (result.sent_bytes, len(final.arrived())) == (0, lying)
    assert result.token == final.expected(token)[1]


def test_a_final_stage_that_delivers_nowhere_draws_all_the_same(
    final: Sending,
) -> None:
    token = final.drawn
    ready = final.ready(token)
    ready.deliver(bytearray(ANY_PREDICTION), REPLY_TOKEN_AT, final.ours.fileno())
    ready.deliver_nowhere()
    result = ready.run(token)
    assert result is not None
    assert (result.sent_bytes, final.arrived()) == (0, b"")
    assert result.token == final.expected(token)[1]


def test_where_somebody_is_told_the_logits_nothing_leaves_before(
    tiny: GgufModel,
) -> None:
    told: list[int] = []
    runtime = load_stage_runtime(
        slice_model(tiny, 0, 6),
        SETTINGS,
        logits_sink=lambda position, _row: told.append(position),
    )
    ours, theirs = socket.socketpair()
    with contextlib.closing(runtime), ours, theirs:
        stage = Sending(runtime, ours, theirs)
        stage.begin()
        ready = stage.ready(stage.drawn)
        ready.deliver(bytearray(ANY_PREDICTION), REPLY_TOKEN_AT, ours.fileno())
        result = ready.run(stage.drawn)
        assert result is not None
        assert (result.sent_bytes, stage.arrived()) == (0, b"")
    assert told == [END - 1, END]
