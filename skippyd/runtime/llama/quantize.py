"""A quantised copy of a model file, by llama.cpp's own quantiser."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from skippyd.errors import ModelError
from skippyd.runtime.llama.bindings import llama
from skippyd.runtime.llama.logs import route_logs, take_recent_errors


if TYPE_CHECKING:
    from pathlib import Path

FILE_TYPES = {"q4_0": 2, "q8_0": 7}
"""llama.cpp's numbers of file types (skippy-facts 6.6)."""


def write_quantized_copy(source: Path, target: Path, file_type: str) -> None:
    """Write `source` to `target` in another type; a lossy source is allowed.

    Raises:
        ModelError: llama.cpp refused; its own words are in the message.
    """
    route_logs()
    params = llama().llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[file_type]
    params.allow_requantize = True
    params.nthread = 1
    code = llama().llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(params)
    )
    if code != 0:
        raise ModelError(
            f"cannot quantise {source} to {file_type}: "
            f"{take_recent_errors() or f'llama.cpp answered {code}'}"
        )
