"""A model slice as an open C stream; nothing model-sized is written or held twice.

The native library serves reads straight from the files that hold the tensors. Without
it the slice is written into a memfd, which then lives beside repacked weights.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, assert_never

from skippyd.errors import ModelError
from skippyd.model.slicing import FileRange, Zeros
from skippyd.model.source import FileSource, write_slice
from skippyd.runtime.llama.native import StreamSegment, native


if TYPE_CHECKING:
    from collections.abc import Iterator

    from skippyd.model.slicing import ModelSlice

NO_FILE = -1
"""Descriptor of a segment that lies in no file: memory, or zeros."""


class SliceStream:
    """An open stream and the count of bytes llama.cpp read from it.

    Args:
        pointer: The C `FILE *`.
        counter: Bytes read so far, updated by the native side.
    """

    def __init__(self, pointer: int, counter: ctypes.c_uint64) -> None:
        self.pointer = pointer
        self._counter = counter

    @property
    def bytes_read(self) -> int:
        """Bytes served so far."""
        return int(self._counter.value)


@contextlib.contextmanager
def open_slice_stream(model_slice: ModelSlice) -> Iterator[SliceStream]:
    """Serve `model_slice` as a `FILE *` for as long as the block runs.

    Raises:
        ModelError: A part cannot be opened or the stream cannot be made.
    """
    library = native()
    assert library is not None
    with FileSource(model_slice) as source:
        segments = (StreamSegment * len(model_slice.segments))()
        for entry, segment in zip(segments, model_slice.segments, strict=True):
            entry.offset, entry.length = segment.offset, segment.length
            _place(entry, segment.data, source)
        counter = ctypes.c_uint64(0)
        pointer = library.skippy_stream_open(
            segments, len(segments), model_slice.total_bytes, ctypes.byref(counter)
        )
        if not pointer:
            raise ModelError("cannot open the slice as a stream: out of memory")
        try:
            yield SliceStream(pointer, counter)
        finally:
            library.skippy_stream_close(pointer)


@contextlib.contextmanager
def slice_in_memory(model_slice: ModelSlice) -> Iterator[str]:
    """Path of a memfd that holds the slice; the fallback without native code."""
    descriptor = os.memfd_create("skippyd-slice", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            write_slice(model_slice, file)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _place(
    entry: StreamSegment, data: bytes | FileRange | Zeros, source: FileSource
) -> None:
    entry.descriptor = NO_FILE
    match data:
        case bytes():
            entry.memory = data
        case FileRange(part_index, file_offset):
            entry.descriptor = source.descriptors[part_index]
            entry.file_offset = file_offset
        case Zeros():
            pass
        case _:
            assert_never(data)
