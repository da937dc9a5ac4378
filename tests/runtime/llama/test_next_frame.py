"""The awaited frame is recognised to the byte; whatever else comes is handed over whole."""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.runtime.llama.next_frame import (
    BYTES,
    FORESEEN,
    OTHER,
    NextFrame,
    next_frame,
)


if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.native

HEAD = bytes(range(100, 124))
TOKEN_AT = (4, 16)
BODY_BYTES = 8
BODY = b"activate"
OTHER_PLACES = [0, 3, 8, 15, 20, 23]
"""Before, between and behind the two tokens: the first byte of each and the last."""


def head(token: int, again: int | None = None) -> bytes:
    """The head with a token at its two places."""
    written = bytearray(HEAD)
    struct.pack_into("<i", written, TOKEN_AT[0], token)
    struct.pack_into("<i", written, TOKEN_AT[1], token if again is None else again)
    return bytes(written)


@attrs.define
class Waiting:
    """A frame, the socket it is awaited on, and two more ends to look at."""

    frame: NextFrame
    body: bytearray
    ours: socket.socket
    theirs: socket.socket
    wake: socket.socket
    waker: socket.socket

    def wait(self, timeout_ms: int = 5000) -> int:
        return self.frame.wait((self.ours.fileno(), self.wake.fileno()), timeout_ms)

    def left(self) -> bytes:
        """What is still in the socket."""
        self.ours.setblocking(False)
        try:
            return self.ours.recv(1000)
        except BlockingIOError:
            return b"nothing"
        finally:
            self.ours.setblocking(True)


def awaited(body: bytearray, poll_us: int = 0) -> NextFrame:
    frame = next_frame(len(HEAD), TOKEN_AT, body, poll_us=poll_us)
    assert frame is not None
    frame.expect(HEAD)
    return frame


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    body = bytearray(BODY_BYTES)
    ours, theirs = socket.socketpair()
    wake, waker = socket.socketpair()
    with ours, theirs, wake, waker:
        yield Waiting(awaited(body), body, ours, theirs, wake, waker)


@pytest.mark.parametrize("token", [0, 5, 319, -1, 2**31 - 1, -(2**31)])
def test_the_whole_frame_is_the_foreseen_one_whatever_its_token(
    waiting: Waiting, token: int
) -> None:
    waiting.theirs.sendall(head(token) + BODY)
    assert waiting.wait() == FORESEEN
    assert waiting.frame.token == token
    assert waiting.body == BODY
    assert waiting.frame.received == head(token) + BODY
    assert waiting.left() == b"nothing"


def test_frame_after_frame_is_recognised(waiting: Waiting) -> None:
    for token in range(50):
        body = struct.pack("<q", token)
        waiting.theirs.sendall(head(token) + body)
        assert waiting.wait() == FORESEEN
        assert (waiting.frame.token, bytes(waiting.body)) == (token, body)


def test_what_follows_the_frame_stays_in_the_socket(waiting: Waiting) -> None:
    waiting.theirs.sendall(head(5) + BODY + head(6) + BODY + b"more")
    for token in (5, 6):
        assert waiting.wait() == FORESEEN
        assert waiting.frame.token == token
    assert waiting.wait() == BYTES
    assert waiting.frame.received == b"more"


@pytest.mark.parametrize("count", [1, 4, 19, 20, 23, 24, 25, 31])
def test_a_part_of_the_frame_is_handed_over_as_bytes(
    waiting: Waiting, count: int
) -> None:
    data = (head(5) + BODY)[:count]
    waiting.theirs.sendall(data)
    assert waiting.wait() == BYTES
    assert waiting.frame.received == data
    assert waiting.left() == b"nothing"


@pytest.mark.parametrize("at", OTHER_PLACES)
def test_a_head_that_differs_in_one_byte_is_handed_over(
    waiting: Waiting, at: int
) -> None:
    changed = bytearray(head(5) + BODY + b"behind")
    changed[at] ^= 1
    waiting.theirs.sendall(changed)
    assert waiting.wait() == BYTES
    assert waiting.frame.received == changed[:32]
    assert waiting.left() == b"behind"


def test_every_byte_of_the_head_counts(waiting: Waiting) -> None:
    for at in range(len(HEAD)):
        changed = bytearray(head(5) + BODY)
        changed[at] ^= 0x80
        waiting.theirs.sendall(changed)
        assert (at, waiting.wait()) == (at, BYTES)
        assert waiting.frame.received == changed


@pytest.mark.parametrize(("first", "second"), [(5, 6), (5, 5 + 2**24), (-1, 0)])
def test_a_token_that_is_said_twice_and_differs_is_handed_over(
    waiting: Waiting, first: int, second: int
) -> None:
    waiting.theirs.sendall(head(first, second) + BODY)
    assert waiting.wait() == BYTES
    assert waiting.frame.received == head(first, second) + BODY


def test_the_token_in_what_is_expected_does_not_matter(waiting: Waiting) -> None:
    waiting.frame.expect(head(7, 8))
    waiting.theirs.sendall(head(9) + BODY)
    assert waiting.wait() == FORESEEN
    assert waiting.frame.token == 9


def test_another_head_may_be_expected_from_now_on(waiting: Waiting) -> None:
    later = bytearray(head(5))
    later[9] += 1
    waiting.theirs.sendall(later + BODY)
    assert waiting.wait() == BYTES
    waiting.frame.expect(later)
    later[9] += 1  # a copy is expected: the caller goes on with its own
    waiting.theirs.sendall(later + BODY)
    assert waiting.wait() == BYTES
    later[9] -= 1
    waiting.theirs.sendall(later + BODY)
    assert waiting.wait() == FORESEEN
    waiting.theirs.sendall(head(5) + BODY)
    assert waiting.wait() == BYTES


@pytest.mark.parametrize("size", [0, 23, 25, 1 << 20])
def test_a_head_of_another_size_is_refused(waiting: Waiting, size: int) -> None:
    """Native code holds the address of the bytes: they must not move."""
    with pytest.raises(BufferError):
        waiting.frame.expect(bytes(size))
    waiting.theirs.sendall(head(5) + BODY)
    assert waiting.wait() == FORESEEN


# ---- nothing is read ---------------------------------------------------------------


def test_no_bytes_within_the_time_is_something_else(waiting: Waiting) -> None:
    assert waiting.wait(0) == OTHER
    assert waiting.frame.received == b""
    began = time.monotonic()
    assert waiting.wait(20) == OTHER
    assert time.monotonic() - began >= 0.019


def test_what_was_received_before_is_not_told_again(waiting: Waiting) -> None:
    waiting.theirs.sendall(head(5) + BODY)
    assert waiting.wait() == FORESEEN
    assert waiting.wait(0) == OTHER
    assert waiting.frame.received == b""


def test_a_peer_that_has_closed_is_something_else(waiting: Waiting) -> None:
    waiting.theirs.close()
    assert waiting.wait() == OTHER
    assert waiting.frame.received == b""
    assert waiting.left() == b""


def test_a_peer_that_only_stops_sending_is_something_else(waiting: Waiting) -> None:
    waiting.theirs.shutdown(socket.SHUT_WR)
    assert waiting.wait() == OTHER
    assert waiting.frame.received == b""
    assert waiting.left() == b""


def test_last_words_of_a_closed_peer_are_left_to_who_looks_next(
    waiting: Waiting,
) -> None:
    waiting.theirs.sendall(head(5) + BODY)
    waiting.theirs.close()
    assert waiting.wait() == OTHER
    assert waiting.frame.received == b""
    assert waiting.left() == head(5) + BODY


def test_the_other_descriptor_ends_the_wait(waiting: Waiting) -> None:
    waiting.waker.sendall(b"!")
    assert waiting.wait() == OTHER
    assert waiting.frame.received == b""
    assert waiting.wake.recv(10) == b"!"


def test_a_frame_beside_another_event_is_left_in_the_socket(waiting: Waiting) -> None:
    waiting.theirs.sendall(head(5) + BODY)
    waiting.waker.sendall(b"!")
    assert waiting.wait() == OTHER
    assert waiting.frame.received == b""
    assert waiting.wake.recv(10) == b"!"
    assert waiting.wait() == FORESEEN


def test_a_closed_descriptor_is_something_else(waiting: Waiting) -> None:
    gone = os.dup(waiting.wake.fileno())
    os.close(gone)
    waiting.theirs.sendall(head(5) + BODY)
    for descriptors in ((waiting.ours.fileno(), gone), (gone,)):
        assert waiting.frame.wait(descriptors, 0) == OTHER
    assert waiting.left() == head(5) + BODY


# ---- how it waits ------------------------------------------------------------------


def test_descriptors_may_change_between_waits(waiting: Waiting) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(head(6) + BODY)
        waiting.theirs.sendall(head(5) + BODY)
        frame = waiting.frame
        assert frame.wait((ours.fileno(),), 0) == FORESEEN
        assert frame.token == 6
        assert frame.wait((waiting.ours.fileno(), ours.fileno()), 0) == FORESEEN
        assert frame.token == 5
        waiting.waker.sendall(b"!")
        assert frame.wait((ours.fileno(), waiting.ours.fileno()), 0) == OTHER
        assert waiting.wait() == OTHER
        theirs.sendall(head(7) + BODY)
        assert frame.wait((ours.fileno(), waiting.ours.fileno()), 0) == FORESEEN
        assert frame.token == 7


def test_polling_first_changes_nothing_but_the_time(waiting: Waiting) -> None:
    frame = awaited(waiting.body, poll_us=3000)
    descriptors = (waiting.ours.fileno(), waiting.wake.fileno())
    began = time.monotonic()
    assert frame.wait(descriptors, 0) == OTHER
    assert time.monotonic() - began >= 0.003, "it polls before it looks at the time"
    waiting.theirs.sendall(head(5) + BODY)
    assert frame.wait(descriptors) == FORESEEN
    waiting.theirs.sendall(head(5))
    assert frame.wait(descriptors) == BYTES
    assert frame.received == head(5)
    waiting.waker.sendall(b"!")
    assert frame.wait(descriptors) == OTHER


def test_what_comes_while_it_polls_ends_the_polling(waiting: Waiting) -> None:
    frame = awaited(waiting.body, poll_us=30_000_000)
    descriptors = (waiting.ours.fileno(), waiting.wake.fileno())
    waiting.theirs.sendall(head(5) + BODY)
    began = time.monotonic()
    assert frame.wait(descriptors) == FORESEEN
    waiting.waker.sendall(b"!")
    assert frame.wait(descriptors) == OTHER
    assert time.monotonic() - began < 20


def test_a_frame_without_body_is_its_head(waiting: Waiting) -> None:
    """So a prediction comes, with everything else of the connection behind it."""
    frame = awaited(bytearray())
    waiting.theirs.sendall(head(5) + head(6) + b"rest")
    for token in (5, 6):
        assert frame.wait((waiting.ours.fileno(),)) == FORESEEN
        assert (frame.token, frame.received) == (token, head(token))
    assert frame.wait((waiting.ours.fileno(),)) == BYTES
    assert frame.received == b"rest"


def test_a_body_of_many_reads_is_awaited_by_who_looks_next() -> None:
    """An activation larger than the socket's buffer comes in parts: bytes, not a frame."""
    body = bytearray(1 << 20)
    frame = awaited(body)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        sent = theirs.send(head(5) + bytes(len(body)))
        assert sent < len(HEAD) + len(body)
        assert frame.wait((ours.fileno(),)) == BYTES
        assert frame.received == (head(5) + bytes(len(body)))[:sent]
