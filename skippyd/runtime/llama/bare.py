"""A bare llama_decode loop over the whole file: what our engine is measured against.

As short as it can be written: no engine thread, no session, no wall, no abort flag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from skippyd.errors import ModelError, SkippyError
from skippyd.runtime.llama.bindings import llama
from skippyd.runtime.llama.logs import take_recent_errors
from skippyd.runtime.llama.model import load_file


if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skippyd.runtime.settings import EngineSettings


class BareLoop:
    """A context and a batch of its own.

    Args:
        path: The model file.
        settings: Context size, batch sizes and threads; the rest is llama.cpp's.

    Raises:
        ModelError: llama.cpp takes neither the file nor the settings.
    """

    def __init__(self, path: Path, settings: EngineSettings) -> None:
        self._model = load_file(path, settings)
        params = llama().llama_context_default_params()
        params.n_ctx = settings.ctx_size
        params.n_batch, params.n_ubatch = settings.n_batch, settings.n_ubatch
        params.n_seq_max = settings.lane_count
        params.n_threads = params.n_threads_batch = settings.n_threads
        params.kv_unified = settings.kv_unified
        params.no_perf = True
        self._context = llama().llama_init_from_model(self._model.pointer, params)
        if not self._context:
            self._model.close()
            raise ModelError(
                f"llama.cpp makes no context for {path}: {take_recent_errors()}"
            )
        self._rows = settings.n_batch
        self._batch = llama().llama_batch_init(settings.n_batch, 0, 1)
        self._position = 0
        self._greedy = llama().llama_sampler_init_greedy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        llama().llama_sampler_free(self._greedy)
        llama().llama_batch_free(self._batch)
        llama().llama_free(self._context)
        self._model.close()

    def begin(self, prompt: Sequence[int]) -> None:
        """Forget everything and compute these tokens."""
        memory = llama().llama_get_memory(self._context)
        llama().llama_memory_clear(memory, False)
        self._run(prompt, 0)
        self._position = len(prompt)

    def decode(self, token: int) -> int:
        """Compute one token and draw the next one greedily."""
        self._run([token], self._position, flagged=True)
        self._position += 1
        return int(llama().llama_sampler_sample(self._greedy, self._context, 0))

    def _run(
        self, tokens: Sequence[int], position: int, *, flagged: bool = False
    ) -> None:
        if len(tokens) > self._rows:  # the arrays below are no longer than that
            raise SkippyError(
                f"the bare loop takes {self._rows} tokens at once, not {len(tokens)}"
            )
        batch: Any = self._batch
        batch.n_tokens = len(tokens)
        for row, token in enumerate(tokens):
            batch.token[row] = token
            batch.pos[row] = position + row
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = 0
            batch.logits[row] = flagged
        if llama().llama_decode(self._context, batch) != 0:
            raise SkippyError("the bare loop's llama_decode failed")
