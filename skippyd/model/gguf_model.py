"""One model over one or several GGUF files, checked before anything relies on it."""

from __future__ import annotations

import os
import re
import struct
from typing import TYPE_CHECKING

import attrs

from skippyd.errors import ModelError
from skippyd.model.completeness import check_complete
from skippyd.model.gguf_limits import MAX_LAYERS, MAX_PARTS
from skippyd.model.gguf_reader import GgufHeader, MetadataEntry, TensorInfo, read_header
from skippyd.model.gguf_types import SCALAR_BYTES, SCALAR_FORMATS, ValueKind
from skippyd.model.header_window import open_part
from skippyd.units import U32_MAX


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from skippyd.model.header_window import PartFile


ARCHITECTURE_KEY = "general.architecture"
SPLIT_COUNT_KEY = "split.count"
SPLIT_INDEX_KEY = "split.no"
SPLIT_TENSORS_KEY = "split.tensors.count"

_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf")


@attrs.frozen(kw_only=True)
class GgufModel:
    """A checked model: metadata of its first file, tensors of all its files.

    `metadata` are the first file's entries; `tensors` keep the order of the files.
    """

    architecture: str
    alignment: int
    metadata: Mapping[str, MetadataEntry]
    tensors: Sequence[TensorInfo]
    part_files: tuple[PartFile, ...]

    @property
    def path(self) -> Path:
        """The file the model was opened by."""
        return self.part_files[0].path

    @property
    def parts(self) -> tuple[Path, ...]:
        """Paths of the model's files in order."""
        return tuple(part.path for part in self.part_files)

    @property
    def layer_count(self) -> int:
        """Number of layers, 1 to 512."""
        return self.required_int("block_count")

    def fail(self, what: str, remedy: str) -> ModelError:
        """Build the error that names this model's file."""
        return ModelError(f"{self.path}: {what}; {remedy}")

    def key(self, name: str) -> str:
        """Full name of one of the architecture's own keys."""
        return f"{self.architecture}.{name}"

    def entry(self, name: str) -> MetadataEntry | None:
        """Entry of one of the architecture's own keys, if it is there."""
        return self.metadata.get(self.key(name))

    def text(self, key: str) -> str | None:
        """Value of a string key given in full, or None when it is not there."""
        entry = self.metadata.get(key)
        if entry is None:
            return None
        if not isinstance(entry.value, str):
            raise self.fail(f"metadata key {key!r} is not a string", _CONVERT)
        return entry.value

    def optional_int(self, name: str) -> int | None:
        """Value of one of the architecture's integer keys, or None.

        Raises:
            ModelError: The key is there and is not an integer from 0 to 2^32 - 1.
        """
        entry = self.entry(name)
        if entry is None:
            return None
        value = entry.value
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.fail(f"metadata key {entry.key!r} is not an integer", _CONVERT)
        if not 0 <= value <= U32_MAX:
            raise self.fail(f"metadata key {entry.key!r} is {value}", _CONVERT)
        return value

    def required_int(self, name: str) -> int:
        """Value of one of the architecture's integer keys that must be there."""
        value = self.optional_int(name)
        if value is None:
            raise self.fail(f"metadata key {self.key(name)!r} is missing", _CONVERT)
        return value

    def array(self, entry: MetadataEntry) -> tuple[int | float, ...]:
        """Elements of a per-layer array, read from the file.

        Raises:
            ModelError: The array holds strings or more elements than layers can have.
        """
        kind = entry.element_kind
        if kind is None or kind is ValueKind.STRING or entry.count > MAX_LAYERS:
            raise self.fail(
                f"metadata key {entry.key!r} is not an array of numbers per layer",
                _CONVERT,
            )
        size = entry.count * SCALAR_BYTES[kind]
        raw = self.read_metadata_bytes(entry.data_start, size)
        return struct.unpack(f"<{entry.count}{SCALAR_FORMATS[kind]}", raw)

    def read_metadata_bytes(self, offset: int, count: int) -> bytes:
        """Bytes of the first file's header; the caller has bounded `count`."""
        descriptor, part = open_part(self.path)
        try:
            if part != self.part_files[0]:
                raise self.fail("the file was replaced", "open the model again")
            raw = os.pread(descriptor, count, offset)
        finally:
            os.close(descriptor)
        if len(raw) != count:
            raise self.fail("the file became shorter", "open the model again")
        return raw


_CONVERT = "convert or fetch the model again"


def open_model(path: Path) -> GgufModel:
    """Open a GGUF model by its only or first file and check all of it.

    Checked are the headers of every part, that the parts belong together, that there
    are layers and weights, and for an architecture that is offered that each layer has
    the tensors it needs. Tensor data is not read.

    Raises:
        ModelError: What is wrong with which file, and what to do.
    """
    headers = _read_parts(path)
    first = headers[0]
    architecture = _text_of(first, ARCHITECTURE_KEY)
    if not architecture:
        raise ModelError(
            f"{path}: metadata key {ARCHITECTURE_KEY!r} is missing; {_CONVERT}"
        )
    model = GgufModel(
        architecture=architecture,
        alignment=first.alignment,
        metadata=first.entries,
        tensors=tuple(tensor for header in headers for tensor in header.tensors),
        part_files=tuple(header.part for header in headers),
    )
    check_complete(model)
    return model


def _read_parts(path: Path) -> list[GgufHeader]:
    first = _read_one(path, 0)
    count = _number_of(first, SPLIT_COUNT_KEY) or 0
    if count <= 1:
        return [first]
    if count > MAX_PARTS:
        raise ModelError(
            f"{path}: claims to be split into {count} files, the limit is {MAX_PARTS}; "
            "merge the parts or fetch the model again"
        )
    paths = _part_paths(path, count, _number_of(first, SPLIT_INDEX_KEY))
    headers = [first]
    for index, part_path in enumerate(paths[1:], start=1):
        header = _read_one(part_path, index)
        _check_part(header, first, index, count)
        headers.append(header)
    _check_tensor_names(headers)
    return headers


def _read_one(path: Path, part_index: int) -> GgufHeader:
    descriptor, part = open_part(path)
    try:
        return read_header(descriptor, part, part_index)
    finally:
        os.close(descriptor)


def _part_paths(path: Path, count: int, index: int | None) -> list[Path]:
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise ModelError(
            f"{path}: is a part of a model split into {count} files but is not named "
            f"...-00001-of-{count:05}.gguf; give the file its name back"
        )
    names = [f"{match['stem']}-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]
    if index != 0 or int(match["index"]) != 1:
        raise ModelError(
            f"{path}: is not the first part of a split model; give {names[0]}"
        )
    paths = [path.with_name(name) for name in names]
    missing = [part.name for part in paths if not part.exists()]
    if missing:
        raise ModelError(
            f"{path}: {len(missing)} of {count} parts missing, the first one is "
            f"{missing[0]}; put every part into the same folder"
        )
    return paths


def _check_part(header: GgufHeader, first: GgufHeader, index: int, count: int) -> None:
    def differ(key: str, found: object, wanted: object) -> ModelError:
        return ModelError(
            f"{header.part.path}: {key} is {found} where {first.part.path.name} needs "
            f"{wanted}; fetch all parts of one model"
        )

    found_index = _number_of(header, SPLIT_INDEX_KEY)
    if found_index != index:
        raise differ(SPLIT_INDEX_KEY, found_index, index)
    for key, wanted in (
        (SPLIT_COUNT_KEY, count),
        (SPLIT_TENSORS_KEY, _number_of(first, SPLIT_TENSORS_KEY)),
    ):
        found = _number_of(header, key)
        if found is not None and found != wanted:
            raise differ(key, found, wanted)
    architecture = _text_of(header, ARCHITECTURE_KEY)
    if architecture and architecture != _text_of(first, ARCHITECTURE_KEY):
        raise differ(ARCHITECTURE_KEY, architecture, _text_of(first, ARCHITECTURE_KEY))


def _check_tensor_names(headers: list[GgufHeader]) -> None:
    first = headers[0]
    seen: set[str] = set()
    for header in headers:
        for tensor in header.tensors:
            if tensor.name in seen:
                raise ModelError(
                    f"{header.part.path}: tensor {tensor.name!r} is in another part "
                    "too; fetch all parts of one model"
                )
            seen.add(tensor.name)
    wanted = _number_of(first, SPLIT_TENSORS_KEY)
    if wanted != len(seen):
        raise ModelError(
            f"{first.part.path}: {SPLIT_TENSORS_KEY} is {wanted}, the parts hold "
            f"{len(seen)} tensors; fetch all parts of one model"
        )


def _text_of(header: GgufHeader, key: str) -> str | None:
    entry = header.entries.get(key)
    value = None if entry is None else entry.value
    if value is not None and not isinstance(value, str):
        raise ModelError(f"{header.part.path}: {key} is not a string; {_CONVERT}")
    return value


def _number_of(header: GgufHeader, key: str) -> int | None:
    entry = header.entries.get(key)
    if entry is None:
        return None
    if not isinstance(entry.value, int) or isinstance(entry.value, bool):
        raise ModelError(f"{header.part.path}: {key} is not an integer; {_CONVERT}")
    return entry.value
