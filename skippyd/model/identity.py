"""Identity of a model: the digest that claims and caches name it by."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from skippyd.errors import ModelError
from skippyd.model.header_window import PartFile, open_part
from skippyd.units import MIB


if TYPE_CHECKING:
    from collections.abc import Callable

    from skippyd.model.gguf_model import GgufModel


READ_BYTES = 4 * MIB


def model_sha256(
    model: GgufModel, progress: Callable[[int, int], None] | None = None
) -> str:
    """Digest of a model in lower hex (contract, "Identity of a model in claims").

    One file: its SHA-256. A split model: the SHA-256 of the parts' digests, as raw
    32-byte values, in order.

    Args:
        model: The model; its files are read once, in pieces.
        progress: Called with (bytes done, bytes in total) after each piece.

    Raises:
        ModelError: A file was replaced since the model was opened.
    """
    total = sum(part.file_bytes for part in model.part_files)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    digests = [_file_sha256(part, advance) for part in model.part_files]
    if len(digests) == 1:
        return digests[0].hex()
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _file_sha256(expected: PartFile, advance: Callable[[int], None]) -> bytes:
    descriptor, part = open_part(expected.path)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if part != expected:
            raise ModelError(
                f"{expected.path}: the file was replaced; open the model again"
            )
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(READ_BYTES))
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
            advance(count)
    return digest.digest()
