"""Bounded reading of one GGUF file's header: metadata, tensor table, no tensor data.

Theory of operation: the header is read once, forward, through a one-megabyte window.
Each count and length is checked against the limits and against the bytes that are left
before anything is kept. Scalars and single strings are kept as values, arrays as byte
ranges only, so that a vocabulary costs a walk and no memory. What passes here also
passes the reader of llama.cpp, whose rules (tensors packed in order, alignment, names)
are at least as wide.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import attrs

from skippyd.model.gguf_limits import (
    MAX_ALIGNMENT,
    MAX_ARRAY_STRINGS,
    MAX_DIMENSIONS,
    MAX_KEY_BYTES,
    MAX_METADATA_KEYS,
    MAX_STRING_BYTES,
    MAX_STRING_BYTES_IN_TOTAL,
    MAX_TENSOR_NAME_BYTES,
    MAX_TENSOR_WEIGHTS,
    MAX_TENSORS,
    MAX_TEXT_BYTES_KEPT,
    MIN_ALIGNMENT,
)
from skippyd.model.gguf_types import (
    SCALAR_BYTES,
    SCALAR_FORMATS,
    TENSOR_TYPES,
    TensorType,
    ValueKind,
)
from skippyd.model.header_window import HeaderWindow, PartFile
from skippyd.units import round_up


if TYPE_CHECKING:
    from collections.abc import Mapping


GGUF_MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
ALIGNMENT_KEY = "general.alignment"

Scalar = int | float | bool | str


@attrs.frozen(kw_only=True)
class MetadataEntry:
    """One metadata key: its value if it is a scalar, and where its bytes lie.

    `start` to `end` is the whole entry in its file, key included, as it can be copied
    into another header. For an array `value` is None, `element_kind` and `count`
    describe it and `data_start` is its first element.
    """

    key: str
    kind: ValueKind
    start: int
    end: int
    value: Scalar | None
    element_kind: ValueKind | None = None
    count: int = 1
    data_start: int = 0


@attrs.frozen(kw_only=True)
class TensorInfo:
    """One tensor: shape in GGUF order (row length first) and where its data lies.

    `part` is the index of the file among the model's parts, or -1 for a tensor that
    a slice adds and no file holds.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    nbytes: int
    part: int
    file_offset: int

    @property
    def is_synthetic(self) -> bool:
        """Whether the tensor is a slice's own zeros instead of model data."""
        return self.part < 0


@attrs.frozen(kw_only=True)
class GgufHeader:
    """What one GGUF file says about itself."""

    part: PartFile
    version: int
    alignment: int
    entries: Mapping[str, MetadataEntry]
    tensors: tuple[TensorInfo, ...]


def read_header(descriptor: int, part: PartFile, part_index: int) -> GgufHeader:
    """Read and check one file's header.

    Args:
        descriptor: The open file; stays the caller's.
        part: What the file was when it was opened.
        part_index: Its place among the parts of a split model.

    Raises:
        ModelError: With the file, what is wrong and what to do, for any header that
            is truncated, oversized, inconsistent or foreign.
    """
    window = HeaderWindow(descriptor, part)
    version, tensor_count, key_count = _read_counts(window)
    entries = _MetadataReader(window).read(key_count)
    alignment = _alignment(window, entries)
    rows = _read_tensor_rows(window, tensor_count)
    data_start = round_up(window.position, alignment)
    return GgufHeader(
        part=part,
        version=version,
        alignment=alignment,
        entries=entries,
        tensors=_place_tensors(window, rows, data_start, alignment, part_index),
    )


def _read_counts(window: HeaderWindow) -> tuple[int, int, int]:
    magic = window.take(4, "the magic number")
    if magic != GGUF_MAGIC:
        window.fail(f"not a GGUF file: it begins with {magic!r}", "give a GGUF file")
    raw_version = window.take(4, "the version")
    version = int.from_bytes(raw_version, "little")
    if version & 0xFFFF == 0 and version:
        window.fail(
            f"big-endian GGUF (version {int.from_bytes(raw_version, 'big')})",
            "fetch or convert a little-endian file",
        )
    if version not in (2, 3):
        window.fail(
            f"GGUF version {version}; versions 2 and 3 are read",
            "convert the model again with a current converter",
        )
    tensor_count, key_count = struct.unpack("<QQ", window.take(16, "the counts"))
    if tensor_count > MAX_TENSORS:
        window.fail(f"{tensor_count} tensors; the limit is {MAX_TENSORS}")
    if key_count > MAX_METADATA_KEYS:
        window.fail(f"{key_count} metadata keys; the limit is {MAX_METADATA_KEYS}")
    return version, tensor_count, key_count


@attrs.define
class _MetadataReader:
    window: HeaderWindow
    _string_bytes: int = 0
    _text_bytes: int = 0
    _array_strings: int = 0

    def read(self, key_count: int) -> dict[str, MetadataEntry]:
        entries: dict[str, MetadataEntry] = {}
        for index in range(key_count):
            entry = self._entry(index)
            if entry.key in entries:
                self.window.fail(f"metadata key {entry.key!r} appears twice")
            entries[entry.key] = entry
        return entries

    def _entry(self, index: int) -> MetadataEntry:
        start = self.window.position
        key = _read_name(self.window, MAX_KEY_BYTES, f"metadata key {index}")
        kind = _read_kind(self.window, key)
        if kind is ValueKind.ARRAY:
            return self._array(key, start)
        value: Scalar
        if kind is ValueKind.STRING:
            value = self._text(key)
        else:
            raw = self.window.take(SCALAR_BYTES[kind], f"the value of {key!r}")
            (value,) = struct.unpack("<" + SCALAR_FORMATS[kind], raw)
            if kind is ValueKind.BOOL:
                value = bool(value)
        return MetadataEntry(
            key=key, kind=kind, start=start, end=self.window.position, value=value
        )

    def _text(self, key: str) -> str:
        what = f"the text of {key!r}"
        length = int.from_bytes(self.window.take(8, what), "little")
        self._count_strings(length, what)
        self._text_bytes += length
        if length > MAX_STRING_BYTES or self._text_bytes > MAX_TEXT_BYTES_KEPT:
            self.window.fail(f"{what} is too long: {length} bytes")
        # Text is shown, never compared byte by byte: a stray byte is no reason to
        # refuse a model that llama.cpp loads.
        return self.window.take(length, what).decode("utf-8", "replace")

    def _array(self, key: str, start: int) -> MetadataEntry:
        what = f"array {key!r}"
        element_kind = _read_kind(self.window, key)
        count = int.from_bytes(self.window.take(8, what), "little")
        data_start = self.window.position
        if element_kind is ValueKind.ARRAY:
            self.window.fail(f"{what} is an array of arrays", "convert the model again")
        if element_kind is ValueKind.STRING:
            self._skip_strings(count, what)
        else:
            self.window.skip(count * SCALAR_BYTES[element_kind], what)
        return MetadataEntry(
            key=key,
            kind=ValueKind.ARRAY,
            start=start,
            end=self.window.position,
            value=None,
            element_kind=element_kind,
            count=count,
            data_start=data_start,
        )

    def _skip_strings(self, count: int, what: str) -> None:
        self.window.require(count * 8, what)
        self._array_strings += count
        if self._array_strings > MAX_ARRAY_STRINGS:
            self.window.fail(
                f"{what} brings the strings to {self._array_strings}; "
                f"the limit is {MAX_ARRAY_STRINGS}"
            )
        length = self.window.skip_strings(count, MAX_STRING_BYTES, what)
        self._count_strings(length, what)

    def _count_strings(self, length: int, what: str) -> None:
        self._string_bytes += length
        if self._string_bytes > MAX_STRING_BYTES_IN_TOTAL:
            self.window.fail(
                f"{what} brings the strings to {self._string_bytes} bytes; "
                f"the limit is {MAX_STRING_BYTES_IN_TOTAL}"
            )


def _read_name(window: HeaderWindow, longest: int, what: str) -> str:
    length = int.from_bytes(window.take(8, what), "little")
    if not 0 < length <= longest:
        window.fail(f"{what} has a name of {length} bytes; 1 to {longest} are allowed")
    raw = window.take(length, what)
    try:
        name = raw.decode("utf-8")
    except UnicodeDecodeError:
        window.fail(f"{what} has a name that is not UTF-8: {raw[:32]!r}")
    if not name.isprintable():
        # llama.cpp keeps names as C strings: a zero byte would end them early.
        window.fail(f"{what} has a name with control characters: {raw[:32]!r}")
    return name


def _read_kind(window: HeaderWindow, key: str) -> ValueKind:
    code = int.from_bytes(window.take(4, f"the type of {key!r}"), "little")
    try:
        return ValueKind(code)
    except ValueError:
        window.fail(f"metadata key {key!r} has the unknown type {code}")


def _alignment(window: HeaderWindow, entries: Mapping[str, MetadataEntry]) -> int:
    entry = entries.get(ALIGNMENT_KEY)
    if entry is None:
        return DEFAULT_ALIGNMENT
    value = entry.value
    if entry.kind is not ValueKind.UINT32 or not isinstance(value, int):
        window.fail(f"{ALIGNMENT_KEY} must be a u32, it is {entry.kind.name.lower()}")
    if not MIN_ALIGNMENT <= value <= MAX_ALIGNMENT or value & (value - 1):
        window.fail(
            f"{ALIGNMENT_KEY} is {value}; it must be a power of two from "
            f"{MIN_ALIGNMENT} to {MAX_ALIGNMENT}",
            "convert the model again",
        )
    return value


@attrs.frozen(kw_only=True)
class _TensorRow:
    name: str
    shape: tuple[int, ...]
    type: TensorType
    nbytes: int
    offset: int


def _read_tensor_rows(window: HeaderWindow, tensor_count: int) -> list[_TensorRow]:
    rows: list[_TensorRow] = []
    names: set[str] = set()
    for index in range(tensor_count):
        row = _read_tensor_row(window, index)
        if row.name in names:
            window.fail(f"tensor {row.name!r} appears twice")
        names.add(row.name)
        rows.append(row)
    return rows


def _read_tensor_row(window: HeaderWindow, index: int) -> _TensorRow:
    name = _read_name(window, MAX_TENSOR_NAME_BYTES, f"tensor {index}")
    what = f"tensor {name!r}"
    dimensions = int.from_bytes(window.take(4, what), "little")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        window.fail(f"{what} has {dimensions} dimensions; 1 to 4 are allowed")
    shape = struct.unpack(f"<{dimensions}Q", window.take(8 * dimensions, what))
    weights = 1
    for length in shape:
        weights *= length
        if length == 0 or weights >= MAX_TENSOR_WEIGHTS:
            window.fail(f"{what} has the impossible shape {shape}")
    code, offset = struct.unpack("<IQ", window.take(12, what))
    kind = TENSOR_TYPES.get(code)
    if kind is None:
        window.fail(
            f"{what} has the data type {code}, which this build cannot load",
            "use a model in a supported quantisation",
        )
    if shape[0] % kind.block_weights:
        window.fail(
            f"{what} has rows of {shape[0]} weights, not a multiple of "
            f"{kind.block_weights} as {kind.name} needs"
        )
    nbytes = kind.row_bytes(weights)
    return _TensorRow(name=name, shape=shape, type=kind, nbytes=nbytes, offset=offset)


def _place_tensors(
    window: HeaderWindow,
    rows: list[_TensorRow],
    data_start: int,
    alignment: int,
    part_index: int,
) -> tuple[TensorInfo, ...]:
    tensors: list[TensorInfo] = []
    expected = 0
    for row in rows:
        if row.offset != expected:
            window.fail(
                f"tensor {row.name!r} lies at {row.offset} of the data and {expected} "
                "is where it must be: tensors overlap or leave a gap"
            )
        file_offset = data_start + row.offset
        if file_offset + row.nbytes > window.part.file_bytes:
            window.fail(
                f"truncated: tensor {row.name!r} ends at byte "
                f"{file_offset + row.nbytes}, the file at {window.part.file_bytes}"
            )
        expected = round_up(row.offset + row.nbytes, alignment)
        tensors.append(
            TensorInfo(
                name=row.name,
                shape=row.shape,
                type=row.type,
                nbytes=row.nbytes,
                part=part_index,
                file_offset=file_offset,
            )
        )
    return tuple(tensors)
