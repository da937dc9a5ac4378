"""Bytes in, parsed values out: the buffer and the loop under every parser.

Theory of operation. A parser is a generator that reads top to bottom like blocking
code: `head = yield from reader.read_exact(72, "message prefix")`. It yields only when
bytes are missing. `Parsing` owns one such generator for the life of a connection:

    receive_data -> bytes are kept            next_value -> run until a value or a yield
    receive_eof  -> no more bytes will come   failed     -> the first error, for good

Invariants. An element is never copied more than once: one that lies inside one
received object is a view of it, one that is spread over several is gathered into a
single growing buffer, to which later bytes go directly. Memory grows with bytes that
arrived, never with a size that a peer merely announced. Mutable input is copied at
once, so a shell may reuse its buffer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

import attrs

from skippyd.errors import LocalProtocolError, RemoteProtocolError


if TYPE_CHECKING:
    from skippyd.core.wire.activation import Payload


_NOTHING: Final = memoryview(b"")

T = TypeVar("T")
Parser: TypeAlias = Generator[None, None, T]
"""A parser in progress: yields while bytes are missing, returns its value."""


def _boundary_bytes(reader: ByteReader) -> int:
    return reader.boundary_bytes


@attrs.define(eq=False)
class ByteReader:
    """Received bytes, handed out in exact pieces."""

    boundary_bytes: int
    """Size of the first element of every value; asked for at a boundary."""
    _need: int = attrs.field(
        init=False, default=attrs.Factory(_boundary_bytes, takes_self=True)
    )
    _chunk: memoryview = attrs.field(init=False, default=_NOTHING)
    _offset: int = attrs.field(init=False, default=0)
    _later: deque[memoryview] = attrs.field(init=False, factory=deque)
    _partial: bytearray = attrs.field(init=False, factory=bytearray)
    _what: str = attrs.field(init=False, default="")
    taken: int = attrs.field(init=False, default=0)
    """Bytes of the current value that are already parsed."""

    def begin(self, what: str) -> None:
        """Stand at a boundary: the next element opens a new value."""
        self.taken = 0
        self._need, self._what = self.boundary_bytes, what
        if self._offset == len(self._chunk):
            # An idle connection does not keep the last activation alive.
            self._chunk, self._offset = _NOTHING, 0

    def receive_data(self, data: Payload) -> None:
        """Keep bytes for the parser; an element in progress takes them directly."""
        if self._partial and (missing := self._need - len(self._partial)):
            view = memoryview(data).cast("B")
            self._partial += view[:missing]
            data = view[missing:]
        if not len(data):
            return
        kept = memoryview(data if isinstance(data, bytes) else bytes(data))
        if self._offset == len(self._chunk) and not self._later:
            self._chunk, self._offset = kept, 0
        else:
            self._later.append(kept)

    @property
    def held_bytes(self) -> int:
        """Bytes that arrived and are not parsed yet."""
        held = len(self._partial) + len(self._chunk) - self._offset
        return held + sum(map(len, self._later)) if self._later else held

    @property
    def missing_bytes(self) -> int:
        """Bytes that must still arrive before the current element is complete."""
        return max(0, self._need - self.held_bytes)

    @property
    def missing(self) -> str:
        """The same as words, for an error message."""
        return f"{self.missing_bytes} of {self._need} bytes of {self._what}"

    def read_exact(self, size: int, what: str) -> Parser[memoryview]:
        """Take the next `size` bytes; `what` names them should they never come."""
        end = self._offset + size
        if end > len(self._chunk):
            return (yield from self._read_across(size, what))
        view = self._chunk[self._offset : end]
        self._offset = end
        self.taken += size
        return view

    def take_rest(self) -> bytes:
        """Give up everything that is not parsed yet."""
        rest = b"".join((self._partial, self._chunk[self._offset :], *self._later))
        self._chunk, self._offset = _NOTHING, 0
        self._later.clear()
        self._partial = bytearray()
        return rest

    def _read_across(self, size: int, what: str) -> Parser[memoryview]:
        self._need, self._what = size, what
        while True:
            self._advance_chunk()
            if not self._partial and len(self._chunk) - self._offset >= size:
                return (yield from self.read_exact(size, what))
            self._gather(size)
            if len(self._partial) == size:
                whole, self._partial = self._partial, bytearray()
                self.taken += size
                return memoryview(whole).toreadonly()
            yield

    def _advance_chunk(self) -> None:
        if self._offset == len(self._chunk) and self._later:
            self._chunk, self._offset = self._later.popleft(), 0

    def _gather(self, size: int) -> None:
        while self._offset < len(self._chunk) and len(self._partial) < size:
            end = self._offset + size - len(self._partial)
            piece = self._chunk[self._offset : end]
            self._partial += piece
            self._offset += len(piece)
            self._advance_chunk()


def _parse_forever(
    reader: ByteReader,
    parse: Callable[[ByteReader], Parser[T]],
    what: str,
    done: list[T],
) -> Parser[None]:
    reader.begin(what)
    while True:
        # No name is bound: it would keep the last value alive while nothing comes.
        done.append((yield from parse(reader)))
        reader.begin(what)
        yield


@attrs.define(eq=False)
class Parsing(Generic[T]):
    """One direction of one connection, parsed value by value.

    Args:
        what: Name of a value's first element, for error messages.
        boundary_bytes: Size of that element.
        parse: Makes the generator that parses one value.
        whole_bytes: Size of the value that comes most; 0 when there is none.
        parse_whole: Parses bytes of that size at once, by the same rules; None when
            they are another value. They usually arrive together.
    """

    what: str
    boundary_bytes: int
    parse: Callable[[ByteReader], Parser[T]]
    whole_bytes: int = 0
    parse_whole: Callable[[bytes], T | None] = lambda _data: None
    _reader: ByteReader = attrs.field(init=False)
    _running: Parser[None] = attrs.field(init=False)
    _done: list[T] = attrs.field(init=False, factory=list)
    _ended: bool = attrs.field(init=False, default=False)
    _failure: RemoteProtocolError | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self._reader = ByteReader(self.boundary_bytes)
        self._running = _parse_forever(self._reader, self.parse, self.what, self._done)

    def receive_data(self, data: Payload) -> None:
        """Keep bytes that arrived.

        Raises:
            RemoteProtocolError: The peer broke the protocol before.
            LocalProtocolError: The end was announced before.
        """
        if self._failure is not None:
            raise _again(self._failure)
        if self._ended:
            raise LocalProtocolError(
                f"{len(data)} bytes were given to a parser after the end of its stream"
            )
        is_whole = len(data) == self.whole_bytes and isinstance(data, bytes)
        if is_whole and self.at_boundary:
            value = self.parse_whole(data)  # type: ignore[arg-type]  # bytes, see above
            if value is not None:
                self._done.append(value)
                return
        self._reader.receive_data(data)

    def receive_eof(self) -> None:
        """Learn that no more bytes will come.

        Raises:
            RemoteProtocolError: What is left cannot become a whole value.
        """
        if self._failure is not None:
            raise _again(self._failure)
        self._ended = True
        if not self._done:
            self._advance()

    def next_value(self) -> T | None:
        """Take the next whole value, or None when bytes are missing.

        Raises:
            RemoteProtocolError: The peer broke the protocol, now or before.
        """
        if self._failure is not None:
            raise _again(self._failure)
        done = self._done
        if not done:
            self._advance()
        return done.pop() if done else None

    @property
    def at_boundary(self) -> bool:
        """Whether no byte of an unfinished or untaken value is held."""
        return not (self._done or self._reader.taken or self._reader.held_bytes)

    @property
    def wanted_bytes(self) -> int:
        """Bytes that complete the current element; above 0 after next_value gave None."""
        return self._reader.missing_bytes

    def take_unread(self) -> bytes:
        """Bytes behind the last value, for the parser that takes over."""
        return self._reader.take_rest()

    def _advance(self) -> None:
        try:
            next(self._running)
        except RemoteProtocolError as error:
            self._failure = error
            raise
        except LocalProtocolError as error:
            # Rules shared with the writer complain locally; here the peer broke them.
            self._failure = RemoteProtocolError(str(error))
            raise self._failure from error
        if self._ended and not self._done and not self.at_boundary:
            self._failure = RemoteProtocolError(
                f"the peer closed the connection inside a message:"
                f" {self._reader.missing} never came; see its log for the cause"
            )
            raise self._failure


def _again(failure: RemoteProtocolError) -> RemoteProtocolError:
    """The first failure, said once more as what caused it."""
    repeated = RemoteProtocolError(str(failure))
    repeated.__cause__ = failure
    return repeated
