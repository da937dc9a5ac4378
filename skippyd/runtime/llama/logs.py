"""llama.cpp's log lines become records of ours, with their level.

Errors of a load are also kept for a while: they are the reason to show when the
library only answers with a null pointer.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import logging
from typing import TYPE_CHECKING

from skippyd.runtime.llama.bindings import address_of, llama
from skippyd.runtime.llama.native import LOG_WRITE, LogSink, native


if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("skippyd.llama")

LEVELS = {1: logging.DEBUG, 2: logging.INFO, 3: logging.WARNING, 4: logging.ERROR}
LOWEST_LEVEL = 3  # warnings; llama.cpp says too much below that
KEPT_ERRORS = 8

_recent_errors: collections.deque[str] = collections.deque(maxlen=KEPT_ERRORS)
_partial: list[str] = []


def route_logs() -> None:
    """Send llama.cpp's warnings and errors to our logger.

    Called before each load: a host that imports `llama_cpp` later takes the callback
    over, and the reason of a refusal would be lost.
    """
    _route()()


@functools.cache
def _route() -> Callable[[], None]:
    """What sets the callback; made once, since C keeps its addresses."""
    library = native()
    if library is None:
        callback = llama().ggml_log_callback(_from_python)
        return functools.partial(llama().llama_log_set, callback, None)
    sink = LogSink(LOWEST_LEVEL, LOG_WRITE(_write))
    set_log = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
        address_of(llama().llama_log_set)
    )

    def route() -> None:
        set_log(address_of(library.skippy_log), ctypes.addressof(sink))

    return route


def take_recent_errors() -> str:
    """Error lines since the last call, joined; empty when there were none."""
    text = "; ".join(_recent_errors)
    _recent_errors.clear()
    return text


def _from_python(level: int, text: bytes, _user: object) -> None:
    if level >= LOWEST_LEVEL:
        _write(level, text)


def _write(level: int, text: bytes) -> None:
    """Gather pieces up to a line end: one record is one line."""
    _partial.append(text.decode(errors="replace"))
    if not _partial[-1].endswith("\n"):
        return
    line = "".join(_partial).strip()
    _partial.clear()
    if not line:
        return
    logger.log(LEVELS.get(level, logging.INFO), "%s", line)
    if LEVELS.get(level) == logging.ERROR:
        _recent_errors.append(line)
