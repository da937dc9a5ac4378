"""A control connection written by hand: TLS, a WebSocket upgrade and frames of bytes.

Says whatever a test wants, with a node's own key or with none. Knows nothing of the
package.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any, Self

import attrs


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

ALPN = "skippy-control/1"
CONTROL_PATH = "/control/1"
TEXT, CLOSE = 0x1, 0x8
FINAL, MASKED = 0x80, 0x80
SHORT_LENGTH_MAX, LENGTH_16, LENGTH_64 = 125, 126, 127
READ_SECONDS = 15.0
HEAD_MAX_BYTES = 65_536


@attrs.frozen
class Frame:
    """One WebSocket frame as it came."""

    opcode: int
    payload: bytes

    @property
    def close_code(self) -> int:
        """The code of a close frame."""
        assert self.opcode == CLOSE, self
        return int(struct.unpack_from("!H", self.payload)[0])

    @property
    def close_reason(self) -> str:
        """The reason of a close frame."""
        return self.payload[2:].decode()


def connect_here(port: int) -> socket.socket:
    """Connect to a port on loopback."""
    return socket.create_connection(("127.0.0.1", port), READ_SECONDS)


class RawControl:
    """One connection to a node's control port.

    Args:
        port: On 127.0.0.1.
        state: State directory whose key and certificate are shown; None: none.
        connect: How the port is reached, where that is otherwise.
    """

    def __init__(
        self,
        port: int,
        state: Path | None = None,
        connect: Callable[[int], socket.socket] = connect_here,
    ) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols([ALPN])
        if state is not None:
            context.load_cert_chain(state / "identity.pem", state / "identity.key")
        self._stream = context.wrap_socket(connect(port))
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection without last words."""
        self._stream.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._stream.sendall(data)

    def upgrade(self, path: str = CONTROL_PATH) -> str:
        """Ask for a WebSocket; return the status line of the answer."""
        key = base64.b64encode(os.urandom(16)).decode()
        self.send(
            f"GET {path} HTTP/1.1\r\nHost: node\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._received:
            assert len(self._received) < HEAD_MAX_BYTES
            self._more()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        return head.split(b"\r\n")[0].decode()

    def announce(self, length_bytes: int) -> None:
        """Send the head of a text frame whose payload does not follow."""
        head = bytes([FINAL | TEXT, MASKED | LENGTH_64])
        self.send(head + struct.pack("!Q", length_bytes) + bytes(4))

    def say(self, method: str, params: object) -> None:
        """Send a JSON-RPC request."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        payload = json.dumps(request).encode()
        # A mask of zeros changes nothing: allowed, and readable in a dump.
        if len(payload) <= SHORT_LENGTH_MAX:
            head = bytes([FINAL | TEXT, MASKED | len(payload)])
        else:
            head = bytes([FINAL | TEXT, MASKED | LENGTH_16])
            head += struct.pack("!H", len(payload))
        self.send(head + bytes(4) + payload)

    def hear(self) -> Frame:
        """Wait for one frame.

        Raises:
            OSError: The connection ended instead.
        """
        first, second = self._take(2)
        length = second
        if second == LENGTH_16:
            length = struct.unpack("!H", self._take(2))[0]
        elif second == LENGTH_64:
            length = struct.unpack("!Q", self._take(8))[0]
        return Frame(first & 0x0F, self._take(length))

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to what was said, past what is pushed meanwhile.

        Raises:
            OSError: The connection ended instead.
        """
        while True:
            frame = self.hear()
            if frame.opcode == CLOSE:
                raise ConnectionResetError(f"closed: {frame.close_reason}")
            document: dict[str, Any] = json.loads(frame.payload)
            if document.get("id") == 1:
                return document

    def until_ended(self) -> None:
        """Wait until the other side has ended the connection.

        Raises:
            TimeoutError: It did not.
        """
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while True:
                self._more()

    def _take(self, count: int) -> bytes:
        while len(self._received) < count:
            self._more()
        taken, self._received = self._received[:count], self._received[count:]
        return taken

    def _more(self) -> None:
        data = self._stream.recv(HEAD_MAX_BYTES)
        if not data:
            raise ConnectionResetError("the other side ended the connection")
        self._received += data
