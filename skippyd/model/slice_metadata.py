"""Metadata of a slice: which entries are copied, cut, replaced or left out."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import attrs

from skippyd.model.architectures import ARCHITECTURES
from skippyd.model.gguf_types import SCALAR_BYTES, ValueKind
from skippyd.model.layer_shapes import (
    WINDOW_KEY,
    WINDOW_PATTERN_KEY,
    sliding_layers,
)


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel
    from skippyd.model.gguf_reader import MetadataEntry
    from skippyd.model.slice_rules import SliceRules


TOKENIZER_PREFIX = "tokenizer."
TOKENIZER_MODEL_KEY = "tokenizer.ggml.model"
SPLIT_PREFIX = "split."
NO_TOKENIZER = "none"


@attrs.frozen
class HeaderRange:
    """Bytes [start, end) of the model's first file."""

    start: int
    end: int


HeaderPiece = bytes | HeaderRange


@attrs.frozen
class SliceMetadata:
    """The metadata section of a slice: its number of keys and its bytes in pieces."""

    key_count: int
    pieces: tuple[HeaderPiece, ...]


def slice_metadata(
    model: GgufModel, start: int, end: int, rules: SliceRules
) -> SliceMetadata:
    """Make the metadata of layers [start, end); unchanged entries stay ranges.

    Raises:
        ModelError: The file was replaced or holds a malformed window pattern.
    """
    sliding = sliding_layers(model)[start:end]
    builder = _Builder(model, start, end, rules=rules, sliding=sliding)
    for entry in model.metadata.values():
        builder.add(entry)
    builder.add_own()
    return SliceMetadata(builder.key_count, tuple(builder.pieces))


@attrs.define
class _Builder:
    model: GgufModel
    start: int
    end: int
    rules: SliceRules = attrs.field(kw_only=True)
    sliding: tuple[bool, ...] = attrs.field(kw_only=True)
    key_count: int = attrs.field(default=0, init=False)
    pieces: list[HeaderPiece] = attrs.field(factory=list, init=False)

    def add(self, entry: MetadataEntry) -> None:
        """Copy, cut or leave out one entry of the whole model."""
        if self._left_out(entry.key):
            return
        self.key_count += 1
        if entry.key == self.model.key("block_count") and self.rules.set_block_count:
            self.pieces.append(u32_entry(entry.key, self.end - self.start))
        elif self.rules.cut_per_layer_arrays and self._is_per_layer(entry):
            self._cut(entry)
        else:
            self.pieces.append(HeaderRange(entry.start, entry.end))

    def add_own(self) -> None:
        """Add what the slice says and the whole model did not."""
        if self._hollow:
            self._own(string_entry(TOKENIZER_MODEL_KEY, NO_TOKENIZER))
            self._own(u32_entry(self.model.key("vocab_size"), 1))
        if any(self.sliding) and self.rules.write_window_pattern:
            key = self.model.key(WINDOW_PATTERN_KEY)
            self._own(bool_array_entry(key, self.sliding))

    def _own(self, piece: bytes) -> None:
        self.key_count += 1
        self.pieces.append(piece)

    @property
    def _hollow(self) -> bool:
        middle = self.start > 0 and self.end < self.model.layer_count
        return middle and self.rules.hollow_vocabulary

    def _left_out(self, key: str) -> bool:
        if key.startswith(SPLIT_PREFIX):
            return self.rules.drop_split_keys
        if key.startswith(TOKENIZER_PREFIX) or key == self.model.key("vocab_size"):
            return self._hollow
        if key == self.model.key(WINDOW_KEY):
            return self._idle_window and self.rules.drop_idle_window
        if key == self.model.key(WINDOW_PATTERN_KEY):
            if self._idle_window:
                return self.rules.drop_idle_window
            return any(self.sliding) and self.rules.write_window_pattern
        return False

    @property
    def _idle_window(self) -> bool:
        architecture = ARCHITECTURES[self.model.architecture]
        return architecture.window is not None and not any(self.sliding)

    def _is_per_layer(self, entry: MetadataEntry) -> bool:
        architecture = ARCHITECTURES[self.model.architecture]
        name = entry.key.removeprefix(f"{architecture.name}.")
        return entry.kind is ValueKind.ARRAY and (
            name in architecture.uniform_arrays or name == WINDOW_PATTERN_KEY
        )

    def _cut(self, entry: MetadataEntry) -> None:
        kind = entry.element_kind
        assert kind is not None
        size = SCALAR_BYTES[kind]
        count = self.end - self.start
        first = entry.data_start + self.start * size
        self.pieces.append(_array_head(entry.key, kind, count))
        self.pieces.append(HeaderRange(first, first + count * size))


def packed_string(text: str) -> bytes:
    """A GGUF string: u64 length, then UTF-8."""
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def u32_entry(key: str, value: int) -> bytes:
    """A metadata entry with a u32."""
    return packed_string(key) + struct.pack("<II", ValueKind.UINT32, value)


def string_entry(key: str, value: str) -> bytes:
    """A metadata entry with a string."""
    kind = struct.pack("<I", ValueKind.STRING)
    return packed_string(key) + kind + packed_string(value)


def bool_array_entry(key: str, values: tuple[bool, ...]) -> bytes:
    """A metadata entry with an array of booleans."""
    return _array_head(key, ValueKind.BOOL, len(values)) + bytes(values)


def _array_head(key: str, kind: ValueKind, count: int) -> bytes:
    return packed_string(key) + struct.pack("<IIQ", ValueKind.ARRAY, kind, count)
