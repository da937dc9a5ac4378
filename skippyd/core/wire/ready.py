"""The ready exchange: four bytes by which a stage says that it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from skippyd.core.wire.layout import I32, READY_MAGIC
from skippyd.core.wire.reader import ByteReader, Parser, Parsing
from skippyd.errors import RemoteProtocolError


if TYPE_CHECKING:
    from skippyd.core.wire.activation import Payload


_WHAT: Final = "the stage ready word"


def is_client_hello(peeked: bytes) -> bool:
    """Whether four peeked bytes are a dialler's optional hello, to be eaten."""
    return peeked == I32.pack(READY_MAGIC)


def parse_ready(reader: ByteReader) -> Parser[bool]:
    """Parse the ready word."""
    (magic,) = I32.unpack((yield from reader.read_exact(I32.size, _WHAT)))
    if magic != READY_MAGIC:
        raise RemoteProtocolError(
            f"stage ready magic mismatch: got {magic & 0xFFFFFFFF:#010x}; what"
            " listens there is no stage of this generation"
        )
    return True


@attrs.define
class ReadyParser:
    """Dialling side of the ready exchange."""

    _parsing: Parsing[bool] = attrs.field(
        init=False, factory=lambda: Parsing(_WHAT, I32.size, parse_ready)
    )

    def receive_data(self, data: Payload) -> None:
        """Keep bytes that arrived."""
        self._parsing.receive_data(data)

    def receive_eof(self) -> None:
        """Learn that no more bytes will come; refuses half a word."""
        self._parsing.receive_eof()

    def next_ready(self) -> bool | None:
        """True once the stage is ready, None while bytes are missing.

        Raises:
            RemoteProtocolError: Something else listens there.
        """
        return self._parsing.next_value()

    def take_unread(self) -> bytes:
        """Bytes that arrived behind the ready word, for the next parser."""
        return self._parsing.take_unread()

    @property
    def at_boundary(self) -> bool:
        """Whether no byte of an unfinished word is held."""
        return self._parsing.at_boundary

    @property
    def wanted_bytes(self) -> int:
        """Bytes that complete the word."""
        return self._parsing.wanted_bytes
