"""Digests of model files that were worked out before, kept across restarts.

A digest belongs to files as they were: device, inode, size and time of change of each
part. The cache is a convenience: a damaged one is dropped and the files read again.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from pathlib import Path

    from skippyd.model.header_window import PartFile

logger = logging.getLogger("skippyd.inventory")

SCHEMA = "skippy.model-digests/1"
MAX_DIGESTS = 4_096
FILE_MAX_BYTES = 16 * 1024 * 1024
SHA256_HEX_DIGITS = 64

FileIdentity = tuple[tuple[int, int, int, int], ...]
"""(device, inode, size, time of change in ns) of each part, in order."""


def identity_of(parts: tuple[PartFile, ...]) -> FileIdentity:
    """Return what tells files apart without reading them."""
    return tuple((p.device, p.inode, p.file_bytes, p.modified_ns) for p in parts)


def are_unchanged(parts: tuple[PartFile, ...]) -> bool:
    """Say whether the files at these paths are still the same ones."""
    for part in parts:
        try:
            status = part.path.stat()
        except OSError:
            return False
        now = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if now != (part.device, part.inode, part.file_bytes, part.modified_ns):
            return False
    return True


@attrs.define(eq=False)
class ModelDigests:
    """The cache; oldest entries are forgotten first.

    Args:
        path: Its file in the state directory; None keeps it in memory.
    """

    path: Path | None
    _known: dict[FileIdentity, str] = attrs.field(factory=dict, init=False)

    def load(self) -> None:
        """Read the file, if it is there and whole."""
        if self.path is None or not self.path.exists():
            return
        try:
            with self.path.open("rb") as file:
                document = json.loads(file.read(FILE_MAX_BYTES))
            self._known = _parsed(document)
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s is dropped: %r; files are read again", self.path, error)

    def get(self, parts: tuple[PartFile, ...]) -> str | None:
        """Return the digest of files as they are, if it is known."""
        return self._known.get(identity_of(parts))

    def put(self, parts: tuple[PartFile, ...], sha256: str) -> None:
        """Remember a digest and write the file anew.

        Raises:
            OSError: It could not be written; the digest is remembered all the same.
        """
        self._known[identity_of(parts)] = sha256
        while len(self._known) > MAX_DIGESTS:
            del self._known[next(iter(self._known))]
        if self.path is not None:
            self._save(self.path)

    def _save(self, path: Path) -> None:
        items = [
            {"parts": [[str(number) for number in part] for part in parts], "sha256": d}
            for parts, d in self._known.items()
        ]
        fresh = path.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"schema": SCHEMA, "items": items}, file)
        fresh.replace(path)


def _parsed(document: dict[str, object]) -> dict[FileIdentity, str]:
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema is {document['schema']!r}")
    items = document["items"]
    if not isinstance(items, list):
        raise TypeError("items is no list")
    return dict(map(_item, items[-MAX_DIGESTS:]))


def _item(item: dict[str, object]) -> tuple[FileIdentity, str]:
    digest, parts = item["sha256"], item["parts"]
    if not isinstance(digest, str) or len(digest) != SHA256_HEX_DIGITS:
        raise ValueError(f"{digest!r} is no SHA-256")
    if not isinstance(parts, list):
        raise TypeError("parts is no list")
    identity = []
    for part in parts:
        device, inode, size, modified = (int(str(number)) for number in part)
        identity.append((device, inode, size, modified))
    return tuple(identity), digest
