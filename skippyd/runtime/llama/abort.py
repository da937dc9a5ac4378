"""The flag llama.cpp asks about while it computes."""

from __future__ import annotations

import ctypes
from typing import Any

from skippyd.runtime.llama.bindings import address_of, llama
from skippyd.runtime.llama.native import native


class AbortFlag:
    """Raised from any thread; ends the whole running batch.

    Args:
        use_native: Whether the native callback may be used.
    """

    def __init__(self, *, use_native: bool = True) -> None:
        self._flag = ctypes.c_int32(0)
        self._use_native = use_native
        self._callback: Any = None

    def raise_(self) -> None:
        """End the running batch and refuse every later one until lowered."""
        self._flag.value = 1

    def lower(self) -> None:
        """Let batches run again."""
        self._flag.value = 0

    def install(self, params: Any) -> None:  # noqa: ANN401 - ctypes structure
        """Put the callback into context parameters; the flag must outlive them."""
        kind = llama().ggml_abort_callback
        library = native() if self._use_native else None
        if library is None:
            self._callback = kind(lambda _user: self._flag.value != 0)
        else:
            self._callback = ctypes.cast(address_of(library.skippy_should_abort), kind)
        params.abort_callback = self._callback
        params.abort_callback_data = ctypes.addressof(self._flag)
