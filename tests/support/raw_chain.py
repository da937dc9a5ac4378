"""A chain of slices, and the unsplit model, run through llama.cpp's plain bindings.

Independent of the product's engine on purpose: it proves slices, nothing else. Slices
are written to anonymous memory and loaded from there; the capture is a Python callback.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import llama_cpp
import numpy as np

from skippyd.model.slice_rules import ALL_RULES, SliceRules
from skippyd.model.slicing import slice_model
from skippyd.model.source import write_slice


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from skippyd.model.gguf_model import GgufModel
    from skippyd.model.slicing import ModelSlice

    Rows = npt.NDArray[np.float32]


_GGML = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
_GGML.ggml_get_name.restype = ctypes.c_char_p
_GGML.ggml_get_name.argtypes = [ctypes.c_void_p]
_GGML.ggml_nbytes.restype = ctypes.c_size_t
_GGML.ggml_nbytes.argtypes = [ctypes.c_void_p]
_GGML.ggml_backend_tensor_get.restype = None
_GGML.ggml_backend_tensor_get.argtypes = [
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_size_t,
]

_EVAL_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p
)

_LOG_LINES: list[str] = []


def _keep_log(level: int, text: bytes, user_data: int | None) -> None:
    _LOG_LINES.append(text.decode("utf-8", "replace"))
    del _LOG_LINES[:-40]


_LOG_CALLBACK = llama_cpp.llama_log_callback(_keep_log)


class LoadError(Exception):
    """llama.cpp did not load a file; the message ends with its last lines."""


@attrs.frozen(kw_only=True)
class Settings:
    """What both sides of a comparison share."""

    context: int = 256
    chunk: int = 16
    decoded: int = 12
    flash_attention: int = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED


@contextmanager
def loaded_stage(
    path: str, settings: Settings, capture: str | None
) -> Iterator[RawStage]:
    """Load a file for the duration of the block.

    Raises:
        LoadError: llama.cpp refused the file.
    """
    llama_cpp.llama_log_set(_LOG_CALLBACK, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.load_mode = llama_cpp.LLAMA_LOAD_MODE_NONE
    with ExitStack() as stack:
        model = llama_cpp.llama_model_load_from_file(path.encode(), params)
        if not model:
            raise LoadError("".join(_LOG_LINES[-8:]))
        stack.callback(llama_cpp.llama_model_free, model)
        stage = RawStage(model, settings, capture=capture)
        stage.open_context(stack)
        yield stage


@attrs.define(slots=False)
class RawStage:
    """One loaded model that takes tokens or activations."""

    model: int
    settings: Settings
    capture: str | None = attrs.field(kw_only=True)
    _captured: list[Rows] = attrs.field(factory=list, init=False)

    def open_context(self, stack: ExitStack) -> None:
        """Make the context and the batches, which `stack` frees."""
        self.width = llama_cpp.llama_model_n_embd(self.model)
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(vocab)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = self.settings.context
        params.n_batch = params.n_ubatch = self.settings.chunk
        params.n_threads = params.n_threads_batch = 1
        params.flash_attn_type = self.settings.flash_attention
        params.kv_unified = True
        params.swa_full = True
        self.callback = _EVAL_CALLBACK(self._on_node)
        if self.capture is not None:
            params.cb_eval = ctypes.cast(self.callback, type(params.cb_eval))
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise LoadError("".join(_LOG_LINES[-8:]))
        stack.callback(llama_cpp.llama_free, self.context)
        self.by_token = llama_cpp.llama_batch_init(self.settings.chunk, 0, 1)
        stack.callback(llama_cpp.llama_batch_free, self.by_token)
        self.by_row = llama_cpp.llama_batch_init(self.settings.chunk, self.width, 1)
        stack.callback(llama_cpp.llama_batch_free, self.by_row)

    def run(self, tokens: Sequence[int], rows: Rows | None, position: int) -> Rows:
        """Run one chunk: activations of all rows, or the last row's logits."""
        batch = self.by_token if rows is None else self.by_row
        count = len(tokens)
        batch.n_tokens = count
        if rows is None:
            for i, token in enumerate(tokens):
                batch.token[i] = token
        else:
            flat = np.ascontiguousarray(rows, dtype=np.float32)
            ctypes.memmove(batch.embd, flat.ctypes.data, flat.nbytes)
        for i in range(count):
            batch.pos[i] = position + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = self.capture is not None or i == count - 1
        self._captured.clear()
        status = llama_cpp.llama_decode(self.context, batch)
        assert status == 0, f"llama_decode: {status}"
        if self.capture is not None:
            return np.concatenate(self._captured)
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(logits, (self.vocab_size,)).copy()

    def _on_node(self, tensor: int, ask: bool, _: int) -> bool:
        if ask:
            name: bytes = _GGML.ggml_get_name(tensor)
            return self.capture is not None and name == self.capture.encode()
        size = _GGML.ggml_nbytes(tensor)
        rows = np.empty(size // 4, np.float32)
        _GGML.ggml_backend_tensor_get(tensor, rows.ctypes.data, 0, size)
        self._captured.append(rows.reshape(-1, self.width))
        # False ends the graph: the final norm and the projection are not computed.
        return False


@attrs.frozen
class Trace:
    """Every predicted row's logits and the greedy tokens."""

    logits: Rows
    tokens: tuple[int, ...]

    def difference(self, other: Trace) -> float:
        """Largest absolute difference between logits."""
        return float(np.abs(self.logits - other.logits).max())


def random_prompt(vocab_size: int, length: int = 40, seed: int = 7) -> list[int]:
    """Token ids from a fixed seed."""
    rng = np.random.default_rng(seed)
    return [int(token) for token in rng.integers(0, vocab_size, length)]


def run_unsplit(
    path: Path, prompt: Sequence[int], settings: Settings | None = None
) -> Trace:
    """Run the original file through plain llama.cpp."""
    settings = settings or Settings()
    with loaded_stage(str(path), settings, None) as stage:
        return _trace([stage], prompt, settings)


def run_chain(
    model: GgufModel,
    cuts: Sequence[int],
    prompt: Sequence[int],
    *,
    settings: Settings | None = None,
    rules: SliceRules = ALL_RULES,
) -> Trace:
    """Run the model cut at `cuts` as a chain of stages in this process."""
    settings = settings or Settings()
    bounds = [0, *cuts, model.layer_count]
    with ExitStack() as stack:
        stages: list[RawStage] = []
        for start, end in pairwise(bounds):
            described = slice_model(model, start, end, rules=rules)
            descriptor = stack.enter_context(slice_in_memory(described))
            capture = None if described.is_final else described.capture_tensor
            opened = loaded_stage(f"/proc/self/fd/{descriptor}", settings, capture)
            stages.append(stack.enter_context(opened))
        return _trace(stages, prompt, settings)


@contextmanager
def slice_in_memory(model_slice: ModelSlice) -> Iterator[int]:
    """Materialise a slice in a memory file and give its descriptor."""
    descriptor = os.memfd_create("slice")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            write_slice(model_slice, file)
        yield descriptor
    finally:
        os.close(descriptor)


def _trace(
    stages: Sequence[RawStage], prompt: Sequence[int], settings: Settings
) -> Trace:
    logits: list[Rows] = []

    def feed(tokens: Sequence[int], position: int) -> None:
        rows: Rows | None = None
        for stage in stages:
            rows = stage.run(tokens, rows, position)
        assert rows is not None
        logits.append(rows)

    for start in range(0, len(prompt), settings.chunk):
        feed(prompt[start : start + settings.chunk], start)
    tokens: list[int] = []
    for step in range(settings.decoded):
        tokens.append(int(logits[-1].argmax()))
        feed(tokens[-1:], len(prompt) + step)
    return Trace(np.array(logits), tuple(tokens))
