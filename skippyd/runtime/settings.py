"""What a stage engine is told: the numbers that move the logits, in one value."""

from __future__ import annotations

from typing import Literal

import attrs


CaptureChoice = Literal["auto", "native", "python"]
FlashAttention = Literal["auto", "disabled", "enabled"]


@attrs.frozen(kw_only=True)
class EngineSettings:
    """Everything that must be equal on both sides of an exact comparison.

    Args:
        ctx_size: KV cells of the one cache all sequences share, in tokens.
        n_batch: Largest batch handed to llama.cpp, in rows.
        n_ubatch: Rows computed at once; a chunk above it is cut by llama.cpp.
        lane_count: Sequences that may live at the same time.
        n_threads: Compute threads; on long caches they change the logits.
        flash_attn_type: auto, disabled or enabled.
        cache_type_k: KV cache type of the keys, by its GGUF name.
        cache_type_v: KV cache type of the values.
        kv_unified: One cache for all sequences.
        swa_full: Full-size cache for sliding layers; a rewind needs it.
        repack: Whether llama.cpp may re-order weights for this CPU.
        check_tensors: Whether llama.cpp validates tensor data while loading.
        capture: Which capture callback to use; auto prefers the native one.
    """

    ctx_size: int = 512
    n_batch: int = 64
    n_ubatch: int = 64
    lane_count: int = 4
    n_threads: int = 1
    flash_attn_type: FlashAttention = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    kv_unified: bool = True
    swa_full: bool = True
    repack: bool = True
    check_tensors: bool = False
    capture: CaptureChoice = "auto"
