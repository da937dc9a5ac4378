"""Reading the last layer's output out of a running graph, and ending it there.

The native callback is the rule. The Python one needs the interpreter lock for every
node (about 330 a token): beside one busy thread that costs 202 ms a token instead of
44. It is kept as a fallback that reports itself by name.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Literal, Protocol

from skippyd.errors import ModelError
from skippyd.runtime.failures import EngineError
from skippyd.runtime.llama.bindings import address_of, buffer_address, ggml_base, llama
from skippyd.runtime.llama.native import Capture, native


if TYPE_CHECKING:
    from skippyd.runtime.settings import CaptureChoice


class NodeCapture(Protocol):
    """A callback that fills a buffer with one tensor's rows."""

    name: Literal["native", "python"]

    def install(self, params: Any) -> None:  # noqa: ANN401 - ctypes structure
        """Put the callback into context parameters."""
        ...

    def aim(self, rows: bytearray) -> None:
        """Write the next batch's rows into this buffer."""
        ...

    def check(self, rows: bytearray) -> None:
        """Raise unless the buffer was filled exactly."""
        ...


def make_capture(target: str, choice: CaptureChoice) -> NodeCapture:
    """The capture for a tensor name, native unless told or forced otherwise."""
    if choice == "python":
        return PythonCapture(target)
    library = native()
    if library is not None:
        return NativeCapture(target, library)
    if choice == "native":
        raise ModelError("the native library is missing; `make native` builds it")
    return PythonCapture(target)


class NativeCapture:
    """The callback of `native.cpp`."""

    name: Literal["native", "python"] = "native"

    def __init__(self, target: str, library: ctypes.CDLL) -> None:
        base = ggml_base()
        self._library = library
        self._state = Capture(
            target=target.encode(),
            tensor_name=address_of(base.ggml_get_name),
            tensor_bytes=address_of(base.ggml_nbytes),
            tensor_get=address_of(base.ggml_backend_tensor_get),
        )

    @property
    def address(self) -> int:
        """Of the native state, for native code that aims it itself."""
        return ctypes.addressof(self._state)

    def install(self, params: Any) -> None:  # noqa: ANN401 - ctypes structure
        """Put the callback into context parameters."""
        params.cb_eval = ctypes.cast(
            address_of(self._library.skippy_capture_node),
            llama().ggml_backend_sched_eval_callback,
        )
        params.cb_eval_user_data = ctypes.addressof(self._state)

    def aim(self, rows: bytearray) -> None:
        """Write the next batch's rows into this buffer."""
        state = self._state
        state.buffer = buffer_address(rows)
        state.capacity_bytes = len(rows)
        state.used_bytes = 0

    def check(self, rows: bytearray) -> None:
        """Raise unless the buffer was filled exactly."""
        if self._state.used_bytes != len(rows):
            raise _not_filled(self._state.used_bytes, rows)


class PythonCapture:
    """The same in Python: slow beside a busy thread, and it says so."""

    name: Literal["native", "python"] = "python"

    def __init__(self, target: str) -> None:
        self._target = target.encode()
        self._rows: bytearray | None = None
        self._used_bytes = 0
        self._callback = llama().ggml_backend_sched_eval_callback(self._on_node)

    def install(self, params: Any) -> None:  # noqa: ANN401 - ctypes structure
        """Put the callback into context parameters."""
        params.cb_eval = self._callback
        params.cb_eval_user_data = None

    def aim(self, rows: bytearray) -> None:
        """Write the next batch's rows into this buffer."""
        self._rows = rows
        self._used_bytes = 0

    def check(self, rows: bytearray) -> None:
        """Raise unless the buffer was filled exactly."""
        if self._used_bytes != len(rows):
            raise _not_filled(self._used_bytes, rows)
        self._rows = None

    def _on_node(self, tensor: int, ask: bool, _user: object) -> bool:
        base = ggml_base()
        if ask:
            return bool(base.ggml_get_name(tensor) == self._target)
        size = int(base.ggml_nbytes(tensor))
        rows = self._rows
        if rows is not None and self._used_bytes + size <= len(rows):
            start = buffer_address(rows) + self._used_bytes
            base.ggml_backend_tensor_get(tensor, start, 0, size)
        self._used_bytes += size
        return False


def _not_filled(used_bytes: int, rows: bytearray) -> EngineError:
    return EngineError(
        f"the last layer gave {used_bytes} bytes, {len(rows)} were expected: "
        "this architecture's output tensor has another name or shape"
    )
