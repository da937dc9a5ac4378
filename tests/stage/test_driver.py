"""A driver keeps replies and messages in step, over a lane or a connection."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

import pytest

from skippyd.core.wire.kinds import MessageKind
from skippyd.core.wire.replies import StageReply, ack, predicted_token
from skippyd.errors import StageFailureError
from skippyd.stage.driver import PREFILL_CREDIT, ChainDriver


if TYPE_CHECKING:
    from skippyd.core.wire.messages import StageMessage


class Script:
    """Answers each message as a chain would; counts what waits."""

    def __init__(self) -> None:
        self.sent: list[StageMessage] = []
        self.waiting: collections.deque[StageReply] = collections.deque()
        self.foreseen: dict[tuple[int, int], int] = {}
        """What is drawn after a token at a position, where the chain foresees it."""
        self.most_waiting = 0
        self.reply_to_decode = predicted_token(42)

    def send(self, message: StageMessage) -> None:
        """See `ChainTransport.send`."""
        self.sent.append(message)
        is_decode = message.kind is MessageKind.DECODE_EMBD
        self.waiting.append(self.reply_to_decode if is_decode else ack())
        self.most_waiting = max(self.most_waiting, len(self.waiting))

    def decode_next(self, _session_id: int, position: int, token: int) -> int | None:
        """See `ChainTransport.decode_next`."""
        return self.foreseen.pop((position, token), None)

    def receive(self) -> StageReply:
        """See `ChainTransport.receive`."""
        return self.waiting.popleft()


@pytest.fixture
def script() -> Script:
    """A chain."""
    return Script()


@pytest.fixture
def driver(script: Script) -> ChainDriver:
    """A session on it."""
    return ChainDriver(transport=script, request_id=1, session_id=2, chunk=4)


def test_a_prompt_goes_out_in_chunks_on_credit(
    script: Script, driver: ChainDriver
) -> None:
    driver.prefill(range(30))
    assert [len(message.tokens) for message in script.sent] == [4] * 7 + [2]
    assert [message.pos_start for message in script.sent] == list(range(0, 30, 4))
    assert script.most_waiting == PREFILL_CREDIT
    assert {message.prompt_token_count for message in script.sent} == {30}


def test_a_stop_in_between_is_asked_for_before_each_chunk(
    script: Script, driver: ChainDriver
) -> None:
    class Left(Exception):  # noqa: N818 - a word, no error
        pass

    def leave() -> None:
        if len(script.sent) == 2:
            raise Left

    with pytest.raises(Left):
        driver.prefill(range(30), before_chunk=leave)
    driver.stop()
    assert [m.kind.name for m in script.sent] == ["PREFILL_EMBD"] * 2 + ["STOP"]
    assert not script.waiting


def test_a_token_is_taken_after_the_acks_before_it(
    script: Script, driver: ChainDriver
) -> None:
    driver.prefill(range(8))
    assert driver.decode(9) == 42
    assert driver.length == 9
    assert not script.waiting


def test_steps_and_positions_count_on(script: Script, driver: ChainDriver) -> None:
    driver.configure(None)
    for _ in range(3):
        driver.decode(1)
    decodes = script.sent[1:]
    assert [(m.pos_start, m.decode_step) for m in decodes] == [(0, 0), (1, 1), (2, 2)]
    driver.trim(1)
    assert driver.length == 1
    driver.trim(5)
    assert driver.length == 1


def test_an_ack_for_a_token_breaks_the_protocol(
    script: Script, driver: ChainDriver
) -> None:
    script.reply_to_decode = ack()
    with pytest.raises(StageFailureError, match="acknowledged what asks for a token"):
        driver.decode(1)
