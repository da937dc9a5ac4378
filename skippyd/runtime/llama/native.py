"""Our native library: found, checked against its ABI number, declared.

A missing library is survivable (the Python capture takes over and is reported);
one with another ABI number is refused, since it would corrupt memory.
"""

from __future__ import annotations

import ctypes
import functools
import logging
from pathlib import Path
from typing import Any, ClassVar

from skippyd.errors import SkippyError


ABI = 2
THREW = -(2**31)
ERROR_BYTES = 512
LIBRARY = Path(__file__).with_name("libskippy_native.so")

logger = logging.getLogger("skippyd.native")


class NativeMismatchError(SkippyError):
    """The native library belongs to another version of this package."""


class Capture(ctypes.Structure):
    """Mirror of `skippy_capture`."""

    _fields_: ClassVar[Any] = [
        ("target", ctypes.c_char * 64),
        ("buffer", ctypes.c_void_p),
        ("capacity_bytes", ctypes.c_size_t),
        ("used_bytes", ctypes.c_size_t),
        ("tensor_name", ctypes.c_void_p),
        ("tensor_bytes", ctypes.c_void_p),
        ("tensor_get", ctypes.c_void_p),
        ("on_full", ctypes.c_void_p),
        ("on_full_user", ctypes.c_void_p),
    ]


class Row(ctypes.Structure):
    """Mirror of `skippy_row`."""

    _fields_: ClassVar[Any] = [
        ("decode", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("batch", ctypes.c_void_p),
        ("token_input", ctypes.c_void_p),
        ("capture", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("output_bytes", ctypes.c_size_t),
        ("sample", ctypes.c_void_p),
        ("sampler", ctypes.c_void_p),
        ("drawn", ctypes.c_int32),
        ("descriptor", ctypes.c_int32),
        ("head", ctypes.c_void_p),
        ("head_bytes", ctypes.c_size_t),
        ("token_at", ctypes.c_uint32 * 2),
        ("sent_bytes", ctypes.c_int64),
        ("sending_ns", ctypes.c_int64),
    ]


class Frame(ctypes.Structure):
    """Mirror of `skippy_frame`."""

    _fields_: ClassVar[Any] = [
        ("expected", ctypes.c_void_p),
        ("head", ctypes.c_void_p),
        ("head_bytes", ctypes.c_size_t),
        ("token_at", ctypes.c_uint32 * 2),
        ("body", ctypes.c_void_p),
        ("body_bytes", ctypes.c_size_t),
        ("received_bytes", ctypes.c_size_t),
    ]


class Watched(ctypes.Structure):
    """Mirror of `pollfd`."""

    _fields_: ClassVar[Any] = [
        ("descriptor", ctypes.c_int32),
        ("events", ctypes.c_short),
        ("happened", ctypes.c_short),
    ]


class StreamSegment(ctypes.Structure):
    """Mirror of `skippy_segment`."""

    _fields_: ClassVar[Any] = [
        ("offset", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("memory", ctypes.c_char_p),
        ("descriptor", ctypes.c_int32),
        ("file_offset", ctypes.c_uint64),
    ]


LOG_WRITE = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_char_p)


class LogSink(ctypes.Structure):
    """Mirror of `skippy_log_sink`."""

    _fields_: ClassVar[Any] = [
        ("lowest_level", ctypes.c_int32),
        ("write", LOG_WRITE),
    ]


@functools.cache
def native() -> ctypes.CDLL | None:
    """The library, or None when it was not built (logged once).

    Raises:
        NativeMismatchError: It was built for another version of this package.
    """
    if not LIBRARY.exists():
        logger.warning(
            "native library %s is missing: the Python capture is used, which is "
            "slow beside a busy thread; `make native` builds it",
            LIBRARY.name,
        )
        return None
    library = ctypes.CDLL(str(LIBRARY))
    _check_abi(library)
    _declare(library)
    return library


def error_text(buffer: ctypes.Array[ctypes.c_char]) -> str:
    """Text a wall left in its buffer."""
    return buffer.value.decode(errors="replace")


def _check_abi(library: ctypes.CDLL) -> None:
    found = library.skippy_native_abi()
    if found != ABI:
        raise NativeMismatchError(
            f"{LIBRARY.name} has ABI {found}, this package needs {ABI}; "
            "rebuild it with `make native`"
        )
    sizes = {
        "skippy_capture_size": ctypes.sizeof(Capture),
        "skippy_segment_size": ctypes.sizeof(StreamSegment),
        "skippy_row_size": ctypes.sizeof(Row),
        "skippy_frame_size": ctypes.sizeof(Frame),
        "skippy_log_sink_size": ctypes.sizeof(LogSink),
    }
    for name, expected in sizes.items():
        function = getattr(library, name)
        function.restype = ctypes.c_size_t
        if function() != expected:
            raise NativeMismatchError(
                f"{LIBRARY.name}: {name} is {function()}, expected {expected}; "
                "rebuild it with `make native`"
            )


def _declare(library: ctypes.CDLL) -> None:
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    int32, size = ctypes.c_int32, ctypes.c_size_t
    wall: list[Any] = [text, size]
    library.skippy_decode.argtypes = [pointer, pointer, pointer, *wall]
    library.skippy_sample.argtypes = [pointer, pointer, pointer, int32, *wall]
    library.skippy_accept.argtypes = [pointer, pointer, int32, *wall]
    library.skippy_tokenize.argtypes = [
        *(pointer, pointer, text, int32, pointer, int32),
        *(ctypes.c_bool, ctypes.c_bool),
        *wall,
    ]
    library.skippy_run_row.argtypes = [pointer, int32, *wall]
    library.skippy_await_frame.argtypes = [
        *(pointer, pointer, size, int32, ctypes.c_int64)
    ]
    for name in ("decode", "sample", "accept", "tokenize", "run_row", "await_frame"):
        getattr(library, f"skippy_{name}").restype = int32
    library.skippy_stream_open.argtypes = [pointer, size, ctypes.c_uint64, pointer]
    library.skippy_stream_open.restype = pointer
    library.skippy_stream_close.argtypes = [pointer]
