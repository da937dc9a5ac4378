"""A bounded view of a file's header: reads forward, holds one window of bytes."""

from __future__ import annotations

import os
import stat
import struct
from typing import TYPE_CHECKING, NoReturn

import attrs

from skippyd.errors import ModelError
from skippyd.model.gguf_limits import WINDOW_BYTES


if TYPE_CHECKING:
    from pathlib import Path


_LENGTH = struct.Struct("<Q")


@attrs.frozen(kw_only=True)
class PartFile:
    """One file of a model and how to tell later that it is still the same one."""

    path: Path
    file_bytes: int
    device: int
    inode: int
    modified_ns: int


def open_part(path: Path) -> tuple[int, PartFile]:
    """Open a model file for reading; the caller owns the descriptor.

    Raises:
        ModelError: There is no such file, it cannot be read, or it is not a
            regular file (a pipe or a device could make every read wait).
    """
    try:
        # O_NONBLOCK keeps the open of a pipe from waiting for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ModelError(
            f"{path}: cannot open the model file: {error.strerror}; "
            "check the path and its permissions"
        ) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ModelError(f"{path}: not a regular file; give the path of a GGUF file")
    return descriptor, PartFile(
        path=path,
        file_bytes=status.st_size,
        device=status.st_dev,
        inode=status.st_ino,
        modified_ns=status.st_mtime_ns,
    )


@attrs.define
class HeaderWindow:
    """Reads little-endian values forward from a descriptor, never past its end.

    Args:
        descriptor: Open for reading; stays the caller's.
        part: What the file was when it was opened.
    """

    descriptor: int
    part: PartFile
    position: int = attrs.field(default=0, kw_only=True)
    _window: bytes = attrs.field(default=b"", init=False)
    _window_start: int = attrs.field(default=0, init=False)

    @property
    def bytes_left(self) -> int:
        """Bytes between the position and the end of the file."""
        return self.part.file_bytes - self.position

    def fail(self, what: str, remedy: str = "fetch the file again") -> NoReturn:
        """Raise the one error of a broken header: file, offset, what, remedy."""
        raise ModelError(
            f"{self.part.path}: {what} (at byte {self.position}); {remedy}"
        )

    def require(self, count: int, what: str) -> None:
        """Fail unless `count` more bytes are in the file."""
        if count > self.bytes_left:
            self.fail(
                f"truncated: {what} takes {count} bytes and {self.bytes_left} are left"
            )

    def take(self, count: int, what: str) -> bytes:
        """Return the next `count` bytes; the caller has bounded `count`."""
        self.require(count, what)
        start = self.position - self._window_start
        if start < 0 or start + count > len(self._window):
            self._refill(count)
            start = 0
        self.position += count
        return self._window[start : start + count]

    def skip(self, count: int, what: str) -> None:
        """Step over `count` bytes without reading them."""
        self.require(count, what)
        self.position += count

    def skip_strings(self, count: int, longest: int, what: str) -> int:
        """Step over `count` length-prefixed strings and return their bytes in total.

        A vocabulary has hundreds of thousands of them, hence the bare loop.
        """
        unpack = _LENGTH.unpack_from
        first = position = self.position
        end = self.part.file_bytes
        begin, window, last = 0, b"", -1
        for _ in range(count):
            if position - begin > last:
                self.position = position
                self.require(8, what)
                self._refill(8)
                begin, window = self._window_start, self._window
                last = len(window) - 8
            (length,) = unpack(window, position - begin)
            if length > longest or position + 8 + length > end:
                self.position = position
                self.fail(f"{what} holds a string of {length} bytes")
            position += 8 + length
        self.position = position
        return position - first - 8 * count

    def _refill(self, count: int) -> None:
        wanted = max(count, min(WINDOW_BYTES, self.bytes_left))
        pieces: list[bytes] = []
        offset = self.position
        while wanted > 0:
            piece = os.pread(self.descriptor, wanted, offset)
            if not piece:
                self.fail("the file became shorter while it was read")
            pieces.append(piece)
            offset += len(piece)
            wanted -= len(piece)
        self._window = b"".join(pieces)
        self._window_start = self.position
