"""Owning wrapper of a loaded llama.cpp model: a slice, or a whole file."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Self

from skippyd.errors import ModelError
from skippyd.runtime.llama.bindings import llama
from skippyd.runtime.llama.huge_pages import HugePageWish
from skippyd.runtime.llama.logs import route_logs, take_recent_errors
from skippyd.runtime.llama.native import native
from skippyd.runtime.llama.stream import open_slice_stream, slice_in_memory


if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from skippyd.model.slicing import ModelSlice
    from skippyd.runtime.settings import EngineSettings

    Progress = Callable[[float], None]

logger = logging.getLogger("skippyd.runtime")


class LlamaModel:
    """A model in memory; freed by `close` or at the end of a `with` block.

    Args:
        pointer: llama.cpp's model.
        bytes_read: Bytes read from the slice's stream, 0 when loaded otherwise.
    """

    def __init__(self, pointer: Any, bytes_read: int = 0) -> None:  # noqa: ANN401 - ctypes pointer
        self.pointer = pointer
        self.bytes_read = bytes_read
        self.width = int(llama().llama_model_n_embd(pointer))
        self.layer_count = int(llama().llama_model_n_layer(pointer))
        self.vocabulary_pointer = llama().llama_model_get_vocab(pointer)
        self.vocabulary_size = int(
            llama().llama_vocab_n_tokens(self.vocabulary_pointer)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model; harmless when repeated."""
        if self.pointer is not None:
            llama().llama_model_free(self.pointer)
            self.pointer = None


def load_slice(
    model_slice: ModelSlice,
    settings: EngineSettings,
    progress: Progress | None = None,
) -> LlamaModel:
    """Load a layer range from wherever its tensors lie.

    Args:
        model_slice: The planned slice.
        settings: `repack` and `check_tensors` matter here.
        progress: Called with the share done, 0.0 to 1.0.

    Raises:
        ModelError: llama.cpp refused the slice; its own words are in the message.
    """
    route_logs()
    params = _model_params(settings)
    params.progress_callback = _progress_callback(progress)
    if native() is not None and settings.capture != "python":
        params.load_mode = llama().LLAMA_LOAD_MODE_NONE
        with open_slice_stream(model_slice) as stream:
            pointer = llama().llama_model_load_from_file_ptr(stream.pointer, params)
            return LlamaModel(_loaded(pointer, "slice"), stream.bytes_read)
    with slice_in_memory(model_slice) as path:
        pointer = llama().llama_model_load_from_file(path.encode(), params)
        return LlamaModel(_loaded(pointer, "slice"))


def load_file(path: Path, settings: EngineSettings) -> LlamaModel:
    """Load a whole file the plain way, as any llama.cpp program does.

    Raises:
        ModelError: llama.cpp refused the file.
    """
    route_logs()
    params = _model_params(settings)
    pointer = llama().llama_model_load_from_file(str(path).encode(), params)
    return LlamaModel(_loaded(pointer, str(path)))


def _model_params(settings: EngineSettings) -> Any:  # noqa: ANN401 - ctypes structure
    params = llama().llama_model_default_params()
    params.n_gpu_layers = 0
    params.use_extra_bufts = settings.repack
    params.check_tensors = settings.check_tensors
    return params


def _progress_callback(progress: Progress | None) -> Any:  # noqa: ANN401 - ctypes function
    wish = HugePageWish()

    def report(share: float, _user: object) -> bool:
        # An exception cannot cross C: both are courtesies, loading goes on.
        with contextlib.suppress(Exception):
            wish.make()
            if progress is not None:
                progress(share)
        return True

    return llama().llama_progress_callback(report)


def _loaded(pointer: Any, what: str) -> Any:  # noqa: ANN401 - ctypes pointer
    errors = take_recent_errors()
    if not pointer:
        raise ModelError(f"llama.cpp refused the {what}: {errors or 'no reason given'}")
    return pointer
