"""Every maximum the GGUF reader enforces, each with its reason."""

from __future__ import annotations

from skippyd.units import KIB, MIB


MAX_METADATA_KEYS = 65_536
MAX_TENSORS = 65_536

MAX_KEY_BYTES = 256
"""Real keys stay below 80."""

MAX_TENSOR_NAME_BYTES = 63
"""ggml keeps names in 64 bytes, the last one zero."""

MAX_STRING_BYTES = 16 * MIB

MAX_STRING_BYTES_IN_TOTAL = 512 * MIB

MAX_TEXT_BYTES_KEPT = 32 * MIB
"""Strings outside arrays stay in memory: names, templates. This is all of them."""

MAX_ARRAY_STRINGS = 2 * 1024 * KIB
"""Strings in all arrays: the reader walks each one, at 0.1 to 0.4 us; real files hold
less than a million."""

MIN_ALIGNMENT = 8
MAX_ALIGNMENT = 4096

MAX_DIMENSIONS = 4
MAX_TENSOR_WEIGHTS = 2**48

MAX_LAYERS = 512
"""LLAMA_MAX_LAYERS of the build."""

MAX_PARTS = 1024
"""Parts of one split model."""

WINDOW_BYTES = MIB
"""How much of a header is held at a time."""
