"""The authentication preamble: proof that a connection belongs to this run.

The token is derived from the run key, the direction and both stage indices, so it
proves run, term, direction and place at once (contract, "Wire"). On any failure the
accepting side says nothing and drops the connection.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final

import attrs

from skippyd.core.wire.layout import AUTH_HEAD, TRANSPORT_AUTH_MAGIC
from skippyd.core.wire.limits import AUTH_TOKEN_MAX_BYTES, RUN_KEY_BYTES
from skippyd.core.wire.reader import ByteReader, Parser, Parsing
from skippyd.errors import LocalProtocolError, RemoteProtocolError


if TYPE_CHECKING:
    from collections.abc import Mapping

    from skippyd.core.wire.activation import Payload


_WHAT: Final = "the authentication preamble"


def lane_purpose(upstream: int, downstream: int) -> str:
    """Purpose of the connection on which one stage sends work to the next."""
    return f"lane:{upstream}>{downstream}"


def return_purpose(dialling: int, accepting: int) -> str:
    """Purpose of a prediction return, by who dials whom."""
    return f"return:{dialling}>{accepting}"


def connection_token(run_key: bytes, purpose: str) -> bytes:
    """Derive the 32-byte token of one connection.

    Raises:
        LocalProtocolError: The key does not have 32 bytes.
    """
    if len(run_key) != RUN_KEY_BYTES:
        raise LocalProtocolError(
            f"a run key has {RUN_KEY_BYTES} bytes, got {len(run_key)}"
        )
    return hmac.digest(run_key, purpose.encode("ascii"), hashlib.sha256)


def match_token(presented: bytes, expected: Mapping[str, bytes]) -> str:
    """Name the purpose whose token was presented.

    Every expected token is compared, each to its end: the time taken tells nothing.

    Raises:
        RemoteProtocolError: None of them was.
    """
    matched = [
        purpose
        for purpose, token in expected.items()
        if hmac.compare_digest(presented, token)
    ]
    if not matched:
        raise RemoteProtocolError(
            "transport auth token mismatch: the peer is of another run or term, or"
            " dialled another stage than it meant to"
        )
    return matched[0]


def parse_token(reader: ByteReader) -> Parser[bytes]:
    """Parse the preamble down to its token."""
    head = yield from reader.read_exact(AUTH_HEAD.size, _WHAT)
    magic, size = AUTH_HEAD.unpack(head)
    if magic != TRANSPORT_AUTH_MAGIC:
        raise RemoteProtocolError(
            f"transport auth magic mismatch: got {magic & 0xFFFFFFFF:#010x}; the peer"
            " sends no token or is no stage of this generation"
        )
    if not 1 <= size <= AUTH_TOKEN_MAX_BYTES:
        raise RemoteProtocolError(
            f"transport auth token length out of range: {size} is not within"
            f" 1..{AUTH_TOKEN_MAX_BYTES}"
        )
    return bytes((yield from reader.read_exact(size, "the transport auth token")))


@attrs.define
class AuthParser:
    """Accepting side of the preamble.

    Args:
        expected: Purpose to token, for every connection that may be opened here.
    """

    expected: Mapping[str, bytes] = attrs.field(repr=False)  # tokens are secret
    _parsing: Parsing[bytes] = attrs.field(
        init=False, factory=lambda: Parsing(_WHAT, AUTH_HEAD.size, parse_token)
    )

    def receive_data(self, data: Payload) -> None:
        """Keep bytes that arrived."""
        self._parsing.receive_data(data)

    def receive_eof(self) -> None:
        """Learn that no more bytes will come; refuses a half preamble."""
        self._parsing.receive_eof()

    def next_purpose(self) -> str | None:
        """Name what the connection is for, or None when bytes are missing.

        Raises:
            RemoteProtocolError: The peer has no right to this connection.
        """
        token = self._parsing.next_value()
        return None if token is None else match_token(token, self.expected)

    def take_unread(self) -> bytes:
        """Bytes that arrived behind the preamble, for the next parser."""
        return self._parsing.take_unread()

    @property
    def at_boundary(self) -> bool:
        """Whether no byte of an unfinished preamble is held."""
        return self._parsing.at_boundary

    @property
    def wanted_bytes(self) -> int:
        """Bytes that complete the current element."""
        return self._parsing.wanted_bytes
