"""Reading a slice: its virtual bytes, fetched from the model's own files."""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self, assert_never

import attrs

from skippyd.errors import ModelError
from skippyd.model.header_window import open_part
from skippyd.model.slicing import FileRange, ModelSlice, Segment, Zeros
from skippyd.units import MIB


if TYPE_CHECKING:
    from types import TracebackType
    from typing import BinaryIO


COPY_BYTES = MIB
"""How much of a slice is in memory while it is written out."""


@attrs.define
class FileSource:
    """Serves a slice's bytes from the files on this machine.

    A context manager: entering opens every part and checks that it is still the file
    the slice was made from, leaving closes them.
    """

    model_slice: ModelSlice
    descriptors: tuple[int, ...] = attrs.field(default=(), init=False)
    _starts: list[int] = attrs.field(factory=list, init=False)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            opened: list[int] = []
            for expected in self.model_slice.part_files:
                descriptor, part = open_part(expected.path)
                stack.callback(os.close, descriptor)
                if part != expected:
                    raise ModelError(
                        f"{expected.path}: the file was replaced or changed after the "
                        "slice was made; open the model again"
                    )
                opened.append(descriptor)
            stack.pop_all()
        self.descriptors = tuple(opened)
        self._starts = [segment.offset for segment in self.model_slice.segments]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()

    def read_into(self, offset: int, target: memoryview) -> int:
        """Fill `target` from `offset` on and return the bytes read, 0 at the end.

        Fewer bytes than asked for are returned only at the end of the slice.

        Raises:
            ModelError: A file became shorter.
        """
        done = 0
        segments = self.model_slice.segments
        index = bisect_right(self._starts, offset) - 1
        while done < len(target) and 0 <= index < len(segments):
            segment = segments[index]
            inside = offset + done - segment.offset
            count = min(segment.length - inside, len(target) - done)
            if count <= 0:
                break
            self._fill(segment, inside, target[done : done + count])
            done += count
            index += 1
        return done

    def _fill(self, segment: Segment, inside: int, target: memoryview) -> None:
        match segment.data:
            case bytes() as data:
                target[:] = data[inside : inside + len(target)]
            case FileRange(part_index, file_offset):
                self._read_file(part_index, file_offset + inside, target)
            case Zeros():
                _clear(target)
            case _:
                assert_never(segment.data)

    def _read_file(self, part_index: int, offset: int, target: memoryview) -> None:
        done = 0
        while done < len(target):
            count = os.preadv(
                self.descriptors[part_index], [target[done:]], offset + done
            )
            if count == 0:
                path = self.model_slice.parts[part_index]
                raise ModelError(
                    f"{path}: ends before byte {offset + len(target)}; the file became "
                    "shorter while it was in use: fetch the model again"
                )
            done += count


def _clear(target: memoryview) -> None:
    zeros = memoryview(bytes(min(len(target), COPY_BYTES)))
    for start in range(0, len(target), COPY_BYTES):
        piece = target[start : start + COPY_BYTES]
        piece[:] = zeros[: len(piece)]


def write_slice(model_slice: ModelSlice, file: BinaryIO) -> None:
    """Write the slice out as a real GGUF file, a mebibyte at a time.

    Raises:
        ModelError: The model's files changed.
    """
    buffer = memoryview(bytearray(COPY_BYTES))
    offset = 0
    with FileSource(model_slice) as source:
        while count := source.read_into(offset, buffer):
            file.write(buffer[:count])
            offset += count
    assert offset == model_slice.total_bytes
