"""Strangers at the ports of a node: every port it has, and connections without manners.

Knows the first bytes of each protocol, nothing of the package.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING

import attrs

from support.process_holdings import child_pids, listening_ports
from support.raw_control import ALPN


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from support.daemons import Daemon

CONTROL, TLS, ECHO, DATA = "control", "control in TLS", "latency echo", "stage data"
OPENAI, DOOR, ADMIN = "stage OpenAI", "front door", "admin socket"
KINDS = (CONTROL, TLS, ECHO, DATA, OPENAI, DOOR, ADMIN)

AUTH_MAGIC = 0x53415554
TOKEN_BYTES = 32
HUGE = 2**40
JOIN_PATH, ADMIN_PATH, CHAT_PATH = "/join/1", "/v1", "/v1/chat/completions"
TIMEOUT_SECONDS = 15.0
DRIP_SECONDS = 0.4
READ_BYTES = 65_536

Address = str | tuple[str, int]


@attrs.frozen
class Port:
    """One place where a node can be spoken to."""

    kind: str
    address: Address


def ports_of(nodes: Sequence[Daemon]) -> tuple[Port, ...]:
    """Every port of nodes that serve a model together, by what is spoken there."""
    data = {row["bind_addr"] for row in nodes[0].ask("status")["stages"]}
    found: list[Port] = []
    for node in nodes:
        assert node.process is not None
        known = {node.control_port: CONTROL, node.door_port: DOOR}
        found.append(Port(ADMIN, str(node.socket)))
        found += [
            Port(known.get(port, ECHO), ("127.0.0.1", port))
            for port in listening_ports(node.process.pid)
        ]
        found.append(Port(TLS, ("127.0.0.1", node.control_port)))
        for pid in child_pids(node.process.pid):
            for port in listening_ports(pid):
                kind = DATA if f"127.0.0.1:{port}" in data else OPENAI
                found.append(Port(kind, ("127.0.0.1", port)))
    missing = set(KINDS) - {port.kind for port in found}
    assert not missing, f"no {missing} among {found}"
    return tuple(found)


@attrs.define(eq=False)
class Stranger:
    """One connection to a port; `visiting` makes it."""

    port: Port
    stream: socket.socket

    def send(self, data: bytes) -> None:
        """Send bytes; a port that does not want them is no error."""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            self.stream.sendall(data)

    def say_all(self) -> None:
        """Send nothing more, but listen."""
        with contextlib.suppress(OSError):
            self.stream.shutdown(socket.SHUT_WR)

    def until_ended(self) -> bytes:
        """Wait until the other side has ended the connection; what it said before.

        Raises:
            TimeoutError: It did not.
        """
        heard = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := self.stream.recv(READ_BYTES):
                heard += data
        return heard

    def has_ended(self) -> bool:
        """Whether the other side has ended it; takes what it has said."""
        try:
            while select.select([self.stream], [], [], 0)[0]:
                if not self.stream.recv(READ_BYTES):
                    return True
        except (ConnectionError, ssl.SSLError):
            return True
        return False

    def upgrade(self, path: str) -> None:
        """Open a WebSocket."""
        self.stream.sendall(
            f"GET {path} HTTP/1.1\r\nHost: node\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: c2tpcHB5IHNheXMgaGVsbG8=\r\n\r\n".encode()
        )
        answer = self.stream.recv(READ_BYTES)
        assert b" 101 " in answer, answer


@contextlib.contextmanager
def visiting(port: Port) -> Iterator[Stranger]:
    """Connect to a port; where TLS is spoken, without a certificate."""
    family = socket.AF_UNIX if isinstance(port.address, str) else socket.AF_INET
    with contextlib.ExitStack() as held:
        stream = held.enter_context(socket.socket(family))
        stream.settimeout(TIMEOUT_SECONDS)
        stream.connect(port.address)
        if port.kind == TLS:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            context.set_alpn_protocols([ALPN])
            stream = held.enter_context(context.wrap_socket(stream))
        yield Stranger(port, stream)


def begin_well(stranger: Stranger) -> None:
    """Send a beginning that its protocol allows, and that only more bytes complete."""
    head = "GET {} HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
    beginnings = {
        CONTROL: b"\x16\x03\x01\x02\x00\x01\x00\x01",
        TLS: head.format(JOIN_PATH).encode(),
        ECHO: b"s",
        DATA: struct.pack("<iB", AUTH_MAGIC, TOKEN_BYTES),
        OPENAI: head.format(CHAT_PATH).encode(),
        DOOR: _chat_head(1000) + b'{"model": "',
        ADMIN: head.format(ADMIN_PATH).encode(),
    }
    stranger.send(beginnings[stranger.port.kind])


def announce_too_much(stranger: Stranger) -> None:
    """Begin a first frame that is far over any limit, and send some of it."""
    kind = stranger.port.kind
    if kind in {TLS, ADMIN}:
        stranger.upgrade(JOIN_PATH if kind == TLS else ADMIN_PATH)
        stranger.send(b"\x81\xff" + struct.pack("!Q", HUGE) + bytes(4))
    elif kind == DATA:
        stranger.send(struct.pack("<iB", AUTH_MAGIC, 255))
    elif kind in {OPENAI, DOOR}:
        stranger.send(_chat_head(HUGE))
    elif kind == CONTROL:
        stranger.send(b"\x16\x03\x01\xff\xff")
    for _ in range(32):
        stranger.send(bytes(READ_BYTES))


def announce_too_long_a_head(stranger: Stranger) -> None:
    """Send a request whose head does not end."""
    stranger.send(b"GET /v1 HTTP/1.1\r\n")
    for _ in range(32):
        stranger.send(b"X-Long: " + b"x" * READ_BYTES + b"\r\n")


def until_all_ended(
    silent: Sequence[Stranger], dripping: Sequence[Stranger], *, within_s: float
) -> None:
    """Say nothing, or a byte now and then, until everyone was sent away.

    Raises:
        AssertionError: Some were not.
    """
    give_up_s = time.monotonic() + within_s
    while True:
        silent, dripping = _staying(silent), _staying(dripping)
        kinds = sorted({each.port.kind for each in (*silent, *dripping)})
        if not kinds:
            return
        assert time.monotonic() < give_up_s, f"still served: {kinds}"
        for each in dripping:
            each.send(b" ")
        time.sleep(DRIP_SECONDS)


def _staying(strangers: Sequence[Stranger]) -> Sequence[Stranger]:
    return [each for each in strangers if not each.has_ended()]


def _chat_head(length: int) -> bytes:
    return (
        f"POST {CHAT_PATH} HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()
