"""One llama.cpp context: batches in, activations or logits out.

Theory of operation. A context belongs to one thread. `decode` takes parts of one or
several sequences and runs them as one batch. A stage that is not the final one flags
every row (llama.cpp would drop rows inside its last layer otherwise), captures the
last layer's output and ends the graph there; its result is a fresh array, so the
caller may send it while the next batch runs. The final stage flags only the rows
whose logits are wanted. Everything llama.cpp would abort the process for is checked
before the call.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from skippyd.errors import ModelError
from skippyd.runtime.failures import (
    AbortedError,
    BadBatchError,
    EngineError,
    KvFullError,
)
from skippyd.runtime.llama.abort import AbortFlag
from skippyd.runtime.llama.batch import BatchArrays
from skippyd.runtime.llama.bindings import address_of, llama
from skippyd.runtime.llama.capture import NodeCapture, make_capture
from skippyd.runtime.llama.logs import take_recent_errors
from skippyd.runtime.llama.native import ERROR_BYTES, THREW, error_text, native


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.runtime.llama.batch import BatchPart
    from skippyd.runtime.llama.model import LlamaModel
    from skippyd.runtime.settings import EngineSettings

    Row = np.ndarray[tuple[int], np.dtype[np.float32]]

CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
FLASH_ATTENTION = {"auto": -1, "disabled": 0, "enabled": 1}


class StageContext:
    """A context over one loaded slice or model.

    Args:
        model: The loaded model; it must outlive the context.
        settings: Sizes, threads, cache types.
        capture_tensor: Name of the tensor to capture, None on the final stage.
    """

    def __init__(
        self,
        model: LlamaModel,
        settings: EngineSettings,
        *,
        capture_tensor: str | None,
    ) -> None:
        self.settings = settings
        self.model = model
        self.width = model.width
        self.abort = AbortFlag(use_native=settings.capture != "python")
        self.capture: NodeCapture | None = None
        if capture_tensor is not None:
            self.capture = make_capture(capture_tensor, settings.capture)
        self.pointer: Any = self._make_context()
        self._memory = llama().llama_get_memory(self.pointer)
        # No batch can hold more rows than the cache has cells.
        capacity = min(settings.n_batch, settings.ctx_size)
        self._arrays = BatchArrays(capacity, self.width)
        self.decode_address = address_of(llama()._lib.llama_decode)  # noqa: SLF001 - its address is wanted
        self._error = ctypes.create_string_buffer(ERROR_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the context; harmless when repeated."""
        if self.pointer is not None:
            llama().llama_free(self.pointer)
            self.pointer = None

    def decode(self, parts: Sequence[BatchPart]) -> bytearray | None:
        """Run the parts as one batch, in their order.

        Returns:
            The captured activations, f32, rows x width in batch order, or None on
            the final stage.

        Raises:
            BadBatchError: A part breaks a rule.
            KvFullError: No room in the cache.
            AbortedError: The abort flag was raised.
            EngineError: Anything else llama.cpp says.
        """
        batch = self._arrays.fill(
            parts,
            flag_all=self.capture is not None,
            sequences=self.settings.lane_count,
            vocabulary_size=self.model.vocabulary_size,
        )
        if self.capture is None:
            self._run(batch)
            return None
        rows = bytearray(4 * batch.n_tokens * self.width)
        self.capture.aim(rows)
        self._run(batch)
        self.capture.check(rows)
        return rows

    def logits(self, row: int) -> Row:
        """Copy of one flagged row's logits, by its index in the last batch."""
        pointer = llama().llama_get_logits_ith(self.pointer, row)
        if not pointer:
            raise EngineError(f"row {row} of the last batch has no logits")
        view = np.ctypeslib.as_array(pointer, (self.model.vocabulary_size,))
        return view.copy()

    def trim(self, sequence: int, keep: int) -> None:
        """Forget everything of a sequence from position `keep` on.

        Raises:
            EngineError: The cache cannot forget a part (sliding cache not full size).
        """
        if not llama().llama_memory_seq_rm(self._memory, sequence, keep, -1):
            raise EngineError(
                f"the KV cache cannot rewind sequence {sequence} to {keep}; "
                "set swa_full to true"
            )

    def copy(self, source: int, target: int) -> None:
        """Let `target` share everything `source` holds."""
        llama().llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def clear(self) -> None:
        """Forget every sequence."""
        llama().llama_memory_clear(self._memory, False)

    def length(self, sequence: int) -> int:
        """Positions a sequence holds."""
        return int(llama().llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def _run(self, batch: Any) -> None:  # noqa: ANN401 - ctypes structure
        library = native()
        if library is None:
            code = llama().llama_decode(self.pointer, batch)
        else:
            code = library.skippy_decode(
                self.decode_address,
                self.pointer,
                ctypes.byref(batch),
                self._error,
                ERROR_BYTES,
            )
        if code != 0:
            raise self.failure(code, batch.n_tokens, self._error)

    def failure(
        self, code: int, count: int, error: ctypes.Array[ctypes.c_char]
    ) -> EngineError:
        """What an answer of `llama_decode` other than 0 means.

        Args:
            code: The answer.
            count: Rows of the batch.
            error: Where the wall has left its text.
        """
        reason = take_recent_errors()
        if code == THREW:
            return EngineError(f"llama.cpp threw: {error_text(error)}")
        if code == 1:
            return KvFullError(
                f"no {count} free cells in the KV cache of {self.settings.ctx_size}; "
                "raise ctx_size or serve fewer lanes"
            )
        if code == 2:  # noqa: PLR2004 - llama_decode's code for an abort
            return AbortedError("the batch was aborted")
        if code == -1:
            return BadBatchError(f"llama.cpp refused the batch: {reason or 'no text'}")
        return EngineError(f"llama_decode answered {code}: {reason or 'no text'}")

    def _make_context(self) -> Any:  # noqa: ANN401 - ctypes pointer
        settings = self.settings
        params = llama().llama_context_default_params()
        params.n_ctx = settings.ctx_size
        # llama.cpp aborts when a batch cannot hold one row of every sequence.
        params.n_batch = max(settings.n_batch, settings.lane_count)
        params.n_ubatch = settings.n_ubatch
        params.n_seq_max = settings.lane_count
        params.n_threads = params.n_threads_batch = settings.n_threads
        params.flash_attn_type = FLASH_ATTENTION[settings.flash_attn_type]
        params.type_k = CACHE_TYPES[settings.cache_type_k]
        params.type_v = CACHE_TYPES[settings.cache_type_v]
        params.kv_unified = settings.kv_unified
        params.swa_full = settings.swa_full
        params.no_perf = True
        self.abort.install(params)
        if self.capture is not None:
            self.capture.install(params)
        pointer = llama().llama_init_from_model(self.model.pointer, params)
        if not pointer:
            raise ModelError(
                "llama.cpp refused the context "
                f"(ctx_size {settings.ctx_size}, cache {settings.cache_type_k}/"
                f"{settings.cache_type_v}, flash attention "
                f"{settings.flash_attn_type}): {take_recent_errors() or 'no reason'}"
            )
        return pointer
