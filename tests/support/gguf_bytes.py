"""GGUF files built byte by byte, valid or not, independently of the product's code."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import attrs


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


UINT8, UINT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = (
    0,
    2,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
)
F32 = 0
ALIGNMENT = 32


def raw_string(data: bytes | str) -> bytes:
    """A string as GGUF stores it: u64 length, then the bytes."""
    raw = data.encode() if isinstance(data, str) else data
    return struct.pack("<Q", len(raw)) + raw


def entry(key: bytes | str, kind: int, payload: bytes) -> bytes:
    """One metadata entry from its parts."""
    return raw_string(key) + struct.pack("<I", kind) + payload


def u32(key: bytes | str, value: int) -> bytes:
    """A u32 entry."""
    return entry(key, UINT32, struct.pack("<I", value))


def u16(key: str, value: int) -> bytes:
    """A u16 entry."""
    return entry(key, UINT16, struct.pack("<H", value))


def text(key: str, value: bytes | str) -> bytes:
    """A string entry."""
    return entry(key, STRING, raw_string(value))


def array(key: str, kind: int, count: int, payload: bytes) -> bytes:
    """An array entry; `count` need not fit `payload`."""
    return entry(key, ARRAY, struct.pack("<IQ", kind, count) + payload)


def u32_array(key: str, values: Sequence[int]) -> bytes:
    """An array entry of u32."""
    return array(key, UINT32, len(values), struct.pack(f"<{len(values)}I", *values))


def text_array(key: str, values: Sequence[str]) -> bytes:
    """An array entry of strings."""
    return array(key, STRING, len(values), b"".join(map(raw_string, values)))


def tensor_row(
    name: bytes | str,
    shape: Sequence[int] = (32,),
    *,
    kind: int = F32,
    offset: int = 0,
    dimensions: int | None = None,
) -> bytes:
    """One row of the tensor table; `dimensions` may lie."""
    count = len(shape) if dimensions is None else dimensions
    lengths = struct.pack(f"<I{len(shape)}Q", count, *shape)
    return raw_string(name) + lengths + struct.pack("<IQ", kind, offset)


def gguf(
    entries: Sequence[bytes] = (),
    rows: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
    alignment: int = ALIGNMENT,
) -> bytes:
    """A whole file; counts may lie; data begin where they must."""
    header = magic + struct.pack(
        "<IQQ",
        version,
        len(rows) if tensor_count is None else tensor_count,
        len(entries) if key_count is None else key_count,
    )
    head = header + b"".join(entries) + b"".join(rows)
    return head + bytes(-len(head) % alignment if data else 0) + data


@attrs.frozen(kw_only=True)
class TinyLlama:
    """A llama of f32 zeros that no one runs: right in structure, 8 weights wide.

    Args:
        extra_entries: Metadata put behind the usual ones.
        replaced: Usual entries by key with another entry, or None to leave one out.
        without: Names of tensors left out.
        extra_tensors: Further tensors by name with their shapes.
        tied: Whether the output is the embedding.
    """

    layers: int = 3
    width: int = 8
    tokens: int = 5
    architecture: str = "llama"
    tied: bool = True
    extra_entries: tuple[bytes, ...] = ()
    replaced: Mapping[str, bytes | None] = attrs.field(factory=dict)
    without: frozenset[str] = frozenset()
    extra_tensors: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)

    def entries(self) -> list[bytes]:
        """The metadata entries in order."""
        arch = self.architecture
        usual: dict[str, bytes] = {"general.architecture": text(ARCHITECTURE, arch)}
        for name, value in (
            ("block_count", self.layers),
            ("context_length", 64),
            ("embedding_length", self.width),
            ("feed_forward_length", 2 * self.width),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
            ("vocab_size", self.tokens),
        ):
            usual[f"{arch}.{name}"] = u32(f"{arch}.{name}", value)
        usual["tokenizer.ggml.model"] = text("tokenizer.ggml.model", "none")
        changed = {**usual, **self.replaced}
        kept = [value for value in changed.values() if value is not None]
        return [*kept, *self.extra_entries]

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes in order."""
        width, wide = self.width, 2 * self.width
        found: dict[str, tuple[int, ...]] = {"token_embd.weight": (width, self.tokens)}
        for layer in range(self.layers):
            block = f"blk.{layer}"
            found[f"{block}.attn_norm.weight"] = (width,)
            found[f"{block}.attn_q.weight"] = (width, width)
            found[f"{block}.attn_k.weight"] = (width, width // 2)
            found[f"{block}.attn_v.weight"] = (width, width // 2)
            found[f"{block}.attn_output.weight"] = (width, width)
            found[f"{block}.ffn_norm.weight"] = (width,)
            found[f"{block}.ffn_gate.weight"] = (width, wide)
            found[f"{block}.ffn_down.weight"] = (wide, width)
            found[f"{block}.ffn_up.weight"] = (width, wide)
        found["output_norm.weight"] = (width,)
        if not self.tied:
            found["output.weight"] = (width, self.tokens)
        found.update(self.extra_tensors)
        return {name: s for name, s in found.items() if name not in self.without}

    def to_bytes(self) -> bytes:
        """The file."""
        return packed(self.entries(), self.tensors())

    def write(self, path: Path) -> Path:
        """Write the file and return its path."""
        path.write_bytes(self.to_bytes())
        return path

    def write_parts(self, folder: Path, count: int, *, stem: str = "tiny") -> Path:
        """Write the model split into `count` files; the first has metadata only."""
        tensors = list(self.tensors().items())
        per_part = -(-len(tensors) // (count - 1))
        for index in range(count):
            first = (index - 1) * per_part
            own = dict(tensors[first : first + per_part]) if index else {}
            split = [
                u16("split.no", index),
                u16("split.count", count),
                entry("split.tensors.count", INT32, struct.pack("<i", len(tensors))),
            ]
            entries = [*self.entries(), *split] if index == 0 else split
            part_path(folder, index, count, stem).write_bytes(packed(entries, own))
        return part_path(folder, 0, count, stem)


ARCHITECTURE = "general.architecture"


def part_path(folder: Path, index: int, count: int, stem: str = "tiny") -> Path:
    """Where part `index` of `count` lies."""
    return folder / f"{stem}-{index + 1:05}-of-{count:05}.gguf"


def packed(entries: Sequence[bytes], tensors: Mapping[str, tuple[int, ...]]) -> bytes:
    """A file whose f32 tensors count 0, 1, 2 ... so that every byte has a place."""
    rows: list[bytes] = []
    data = bytearray()
    number = 0
    for name, shape in tensors.items():
        rows.append(tensor_row(name, shape, offset=len(data)))
        weights = 1
        for length in shape:
            weights *= length
        data += struct.pack(f"<{weights}f", *range(number, number + weights))
        number += weights
        data += bytes(-len(data) % ALIGNMENT)
    return gguf(entries, rows, bytes(data))
