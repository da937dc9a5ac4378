"""The client's half of WebSocket (RFC 6455), for text messages of a local daemon.

Pure: bytes in, events out. A library for it would take longer to import than a command
takes to run; what a client of one own server needs is little: masked frames out, whole
or fragmented texts in, pings, a close. Anything else is an error, by name.
"""

from __future__ import annotations

import base64
import hashlib
from enum import IntEnum


GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
MESSAGE_MAX_BYTES = 4 * 1024 * 1024
HEAD_MAX_BYTES = 8192

_FIN = 0x80
_MASKED = 0x80
_SHORT_MAX = 125
_TWO_BYTES, _EIGHT_BYTES = 126, 127
_CONTROL = 0x8


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0x0
    TEXT = 0x1
    BYTES = 0x2
    CLOSE = 0x8
    PING = 0x9
    PONG = 0xA


class FrameError(Exception):
    """The server does not speak WebSocket as a client may expect."""


def request_head(target: str, key: bytes) -> bytes:
    """The opening handshake for 16 random bytes of key."""
    lines = (
        f"GET {target} HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {base64.b64encode(key).decode()}",
        "Sec-WebSocket-Version: 13",
        "\r\n",
    )
    return "\r\n".join(lines).encode()


def check_response(head: bytes, key: bytes) -> None:
    """Check the server's answer to the handshake.

    Raises:
        FrameError: It did not accept.
    """
    status, *lines = head.decode("latin-1").split("\r\n")
    if not status.startswith("HTTP/1.1 101"):
        raise FrameError(f"it answered {status[:80]!r}")
    fields = dict(line.lower().split(":", 1) for line in lines if ":" in line)
    proof = hashlib.sha1(  # noqa: S324 - RFC 6455 wants it
        base64.b64encode(key) + GUID.encode()
    )
    expected = base64.b64encode(proof.digest()).decode().lower()
    if fields.get("sec-websocket-accept", "").strip() != expected:
        raise FrameError("its answer to the handshake does not fit")


def client_frame(opcode: Opcode, payload: bytes, mask: bytes) -> bytes:
    """One whole frame, masked with four random bytes as clients must."""
    size = len(payload)
    head = bytes([_FIN | opcode])
    if size <= _SHORT_MAX:
        head += bytes([_MASKED | size])
    elif size < 1 << 16:
        head += bytes([_MASKED | _TWO_BYTES]) + size.to_bytes(2, "big")
    else:
        head += bytes([_MASKED | _EIGHT_BYTES]) + size.to_bytes(8, "big")
    return head + mask + _masked(payload, mask)


def _masked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    stretched = (mask * (size // 4 + 1))[:size]
    both = int.from_bytes(payload, "big") ^ int.from_bytes(stretched, "big")
    return both.to_bytes(size, "big")


class FrameReader:
    """Bytes of a server in, whole messages and control frames out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._message = bytearray()
        self._is_fragmented = False

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self._buffer += data

    def head(self) -> bytes | None:
        """The server's answer to the handshake, once it is whole.

        Raises:
            FrameError: It is too long.
        """
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_MAX_BYTES:
                raise FrameError("its answer to the handshake is too long")
            return None
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        return head

    def next_message(self) -> tuple[Opcode, bytes] | None:
        """A whole message or control frame; None when more bytes are needed.

        Raises:
            FrameError: It is no frame a server may send, or too long.
        """
        while (frame := self._next_frame()) is not None:
            is_last, opcode, payload = frame
            if opcode >= _CONTROL:
                return opcode, payload
            if (opcode is Opcode.CONTINUATION) is not self._is_fragmented:
                raise FrameError("its fragments are out of order")
            if opcode is Opcode.BYTES:
                raise FrameError("it sent bytes where texts are due")
            self._message += payload
            self._is_fragmented = not is_last
            if len(self._message) > MESSAGE_MAX_BYTES:
                raise FrameError("its message is too long")
            if is_last:
                whole, self._message = bytes(self._message), bytearray()
                return Opcode.TEXT, whole
        return None

    def _next_frame(self) -> tuple[bool, Opcode, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:  # noqa: PLR2004 - the two bytes every frame has
            return None
        first, second = buffer[0], buffer[1]
        sized = self._size(second)
        if sized is None:
            return None
        size, start = sized
        if len(buffer) < start + size:
            return None
        payload = bytes(buffer[start : start + size])
        del buffer[: start + size]
        return bool(first & _FIN), _opcode(first, size), payload

    def _size(self, second: int) -> tuple[int, int] | None:
        """Length of the payload and where it begins."""
        if second & _MASKED:
            raise FrameError("it masks its frames as only clients do")
        extra = {_TWO_BYTES: 2, _EIGHT_BYTES: 8}.get(second, 0)
        start = 2 + extra
        if len(self._buffer) < start:
            return None
        size = int.from_bytes(self._buffer[2:start], "big") if extra else second
        if size > MESSAGE_MAX_BYTES:
            raise FrameError("its message is too long")
        return size, start


def _opcode(first: int, size: int) -> Opcode:
    if first & 0x70:
        raise FrameError("it uses extensions that were not agreed on")
    try:
        opcode = Opcode(first & 0x0F)
    except ValueError as error:
        raise FrameError(f"it sent a frame of kind {first & 0x0F}") from error
    if opcode >= _CONTROL and not (first & _FIN and size <= _SHORT_MAX):
        raise FrameError("its control frame is too long or in parts")
    return opcode
