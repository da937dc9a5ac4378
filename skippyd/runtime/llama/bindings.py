"""llama-cpp-python's ctypes declarations, without the rest of that package.

Importing `llama_cpp` also imports its high-level classes and with them a disk cache
with an unfixed pickle hole (CVE-2025-69872). Only the declarations are wanted: they
are loaded under a bare package which is taken out of `sys.modules` again, so that a
host which imports `llama_cpp` itself still gets the real one.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from skippyd.errors import SkippyError


PACKAGE = "llama_cpp"
_LOADING = threading.Lock()


class LlamaMissingError(SkippyError):
    """The llama.cpp library is not installed in this environment."""


@functools.cache
def package_folder() -> Path:
    """Folder of the installed `llama_cpp` package, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise LlamaMissingError(
            "llama-cpp-python is not installed in this environment; "
            "`make run` or `pip install llama-cpp-python` builds it"
        )
    return Path(next(iter(spec.submodule_search_locations)))


@functools.cache
def llama() -> Any:  # noqa: ANN401 - the declarations carry no types
    """The declarations module; the first call initialises the backend."""
    with _LOADING:
        declarations = _import_declarations()
    declarations.llama_backend_init()
    return declarations


@functools.cache
def ggml_base() -> ctypes.CDLL:
    """`libggml-base`, for the tensor functions the capture needs."""
    library = ctypes.CDLL(str(package_folder() / "lib" / "libggml-base.so"))
    library.ggml_get_name.restype = ctypes.c_char_p
    library.ggml_get_name.argtypes = [ctypes.c_void_p]
    library.ggml_nbytes.restype = ctypes.c_size_t
    library.ggml_nbytes.argtypes = [ctypes.c_void_p]
    library.ggml_backend_tensor_get.restype = None
    library.ggml_backend_tensor_get.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
    ]
    return library


def address_of(function: Any) -> int:  # noqa: ANN401 - a ctypes function object
    """Machine address of a C function, to be handed to our native library."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def buffer_address(buffer: bytearray) -> int:
    """Machine address of a buffer's bytes; it must not change its size meanwhile."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def build_description() -> str:
    """Name of the llama.cpp build, as reports show it."""
    version = llama().llama_version()
    text = version.decode() if isinstance(version, bytes) else str(version)
    return f"llama.cpp {text}".strip()


def cpu_features() -> str:
    """The CPU features this build uses, as llama.cpp lists them."""
    raw: bytes = llama().llama_print_system_info()
    features = raw.decode(errors="replace")
    on = [part.strip() for part in features.replace(":", "|").split("|")]
    return " ".join(part.removesuffix(" = 1") for part in on if part.endswith("= 1"))


def _import_declarations() -> ModuleType:
    if PACKAGE in sys.modules:
        return importlib.import_module(f"{PACKAGE}.{PACKAGE}")
    bare = ModuleType(PACKAGE)
    bare.__path__ = [str(package_folder())]
    sys.modules[PACKAGE] = bare
    try:
        return importlib.import_module(f"{PACKAGE}.{PACKAGE}")
    finally:
        for name in [n for n in sys.modules if n.split(".")[0] == PACKAGE]:
            del sys.modules[name]
