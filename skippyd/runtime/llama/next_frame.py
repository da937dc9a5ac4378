"""The frame a socket should bring next, recognised natively; see `next_token.cpp`."""

from __future__ import annotations

import ctypes

from skippyd.runtime.llama.bindings import buffer_address
from skippyd.runtime.llama.native import Frame, Watched, native


POLLIN = 0x001
FOR_EVER_MS = -1


OTHER = 0
"""A wait ended: something happened, and nothing was read."""
FORESEEN = 1
"""A wait ended: the frame is there, whole and as expected."""
BYTES = 2
"""A wait ended: other bytes came, or a part of the frame; `received` are they."""


class NextFrame:
    """A frame of which everything is known but one token and the bytes at its end.

    Args:
        library: The native library.
        head_bytes: What is known.
        token_at: The two places in the head that say the token.
        body: Where the rest goes; empty when there is none.
        poll_us: Busy polling before the thread sleeps, in microseconds.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        head_bytes: int,
        token_at: tuple[int, int],
        body: bytearray,
        *,
        poll_us: int,
    ) -> None:
        self._library = library
        self._expected = bytearray(head_bytes)
        self._head = bytearray(head_bytes)
        self._body = body
        self._poll_ns = 1000 * poll_us
        self._words = memoryview(self._head).cast("i")
        self._held = memoryview(self._expected)  # refuses another size: it would move
        self._token_word = token_at[0] // self._words.itemsize
        self._watched = (Watched * 0)()
        self._watched_of: tuple[int, ...] = ()
        self._frame = Frame(
            expected=buffer_address(self._expected),
            head=buffer_address(self._head),
            head_bytes=head_bytes,
            token_at=token_at,
            body=buffer_address(body) if body else None,
            body_bytes=len(body),
        )
        self._address = ctypes.addressof(self._frame)

    def expect(self, head: bytes | bytearray) -> None:
        """Say what the head will be; whatever it says of the token does not matter."""
        self._expected[:] = head

    def wait(self, descriptors: tuple[int, ...], timeout_ms: int = FOR_EVER_MS) -> int:
        """Wait until something happens on a descriptor; the first one is read.

        Args:
            descriptors: The socket, and what else ends the wait.
            timeout_ms: How long.

        Returns:
            OTHER, FORESEEN or BYTES.
        """
        if descriptors != self._watched_of:
            self._watch(descriptors)
        answer: int = self._library.skippy_await_frame(
            self._address, self._watched, len(descriptors), timeout_ms, self._poll_ns
        )
        return answer

    @property
    def token(self) -> int:
        """The token of the frame that is there."""
        return self._words[self._token_word]

    @property
    def received(self) -> bytes:
        """A copy of all that was read."""
        count = int(self._frame.received_bytes)
        return b"".join((self._head, self._body))[:count]

    def _watch(self, descriptors: tuple[int, ...]) -> None:
        rows = [Watched(descriptor, POLLIN) for descriptor in descriptors]
        self._watched = (Watched * len(rows))(*rows)
        self._watched_of = descriptors


def next_frame(
    head_bytes: int, token_at: tuple[int, int], body: bytearray, *, poll_us: int
) -> NextFrame | None:
    """A frame to be awaited; None without the native library."""
    library = native()
    if library is None:
        return None
    return NextFrame(library, head_bytes, token_at, body, poll_us=poll_us)
