"""A range of layers as a GGUF of its own, described without being written.

Theory of operation: a slice is a list of segments that cover a virtual GGUF file from
its first byte to its last. A segment is bytes (what the slice says itself), a range of
one of the model's files (metadata and tensors as they are), or zeros. Whoever reads the
slice fetches ranges from wherever the tensors are; nothing of the model's size is ever
in memory here. Which tensors and keys go where is decided by `architectures.py`
(what is known), `refusals.py` (what is offered) and `slice_metadata.py`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import attrs

from skippyd.model.architectures import (
    INPUT_EMBEDDING,
    OUTPUT_TENSORS,
    OUTPUT_WEIGHT,
)
from skippyd.model.completeness import block_tensor
from skippyd.model.gguf_reader import GGUF_MAGIC, TensorInfo
from skippyd.model.gguf_types import F32, PLACEHOLDER_TYPES, TensorType
from skippyd.model.refusals import check_range
from skippyd.model.slice_metadata import (
    HeaderRange,
    packed_string,
    slice_metadata,
)
from skippyd.model.slice_rules import ALL_RULES, SliceRules
from skippyd.units import round_up


if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel
    from skippyd.model.header_window import PartFile
    from skippyd.model.slice_metadata import SliceMetadata


WRITTEN_VERSION = 3


@attrs.frozen
class FileRange:
    """Data that lies in one of the model's files from `file_offset` on."""

    part_index: int
    file_offset: int


@attrs.frozen
class Zeros:
    """Data that is zero and lies nowhere."""


@attrs.frozen(kw_only=True)
class Segment:
    """Bytes [offset, offset + length) of the virtual file and where they come from."""

    offset: int
    length: int
    data: bytes | FileRange | Zeros


@attrs.frozen(kw_only=True)
class ModelSlice:
    """Layers [layer_start, layer_end) of a model as a virtual GGUF file.

    Args:
        segments: Cover the file exactly, in order.
        total_bytes: Size of the virtual file.
        part_files: The model's files, which ranges refer to by index.
        resident_tensors: Tensors the stage holds, under the names of the whole model;
            `is_synthetic` marks zeros that the loader demands and nothing reads.
    """

    architecture: str
    layer_start: int
    layer_end: int
    model_layer_count: int
    segments: tuple[Segment, ...]
    total_bytes: int
    part_files: tuple[PartFile, ...]
    resident_tensors: tuple[TensorInfo, ...]

    @property
    def parts(self) -> tuple[Path, ...]:
        """Paths of the model's files."""
        return tuple(part.path for part in self.part_files)

    @property
    def layer_count(self) -> int:
        """Layers in the slice."""
        return self.layer_end - self.layer_start

    @property
    def is_first(self) -> bool:
        """Whether token ids enter here."""
        return self.layer_start == 0

    @property
    def is_final(self) -> bool:
        """Whether logits leave here."""
        return self.layer_end == self.model_layer_count

    @property
    def resident_tensor_bytes(self) -> int:
        """Tensor data the stage holds, synthetic tensors included."""
        return sum(tensor.nbytes for tensor in self.resident_tensors)

    @property
    def capture_tensor(self) -> str:
        """Graph name of the last layer's output, which a non-final stage hands on."""
        return f"l_out-{self.layer_count - 1}"


def slice_model(
    model: GgufModel, layer_start: int, layer_end: int, *, rules: SliceRules = ALL_RULES
) -> ModelSlice:
    """Describe layers [layer_start, layer_end) as a model of their own.

    The whole range is allowed too: one stage that is first and final.

    Raises:
        RefusedError: The range, the architecture or something in the model is not
            known to be exact.
        ModelError: The file was replaced since it was opened.
    """
    check_range(model, layer_start, layer_end, rules=rules)
    tensors = _select_tensors(model, layer_start, layer_end, rules)
    layout = _Layout(model)
    layout.add_header(slice_metadata(model, layer_start, layer_end, rules), tensors)
    for _, tensor in tensors:
        layout.add_tensor(tensor)
    return ModelSlice(
        architecture=model.architecture,
        layer_start=layer_start,
        layer_end=layer_end,
        model_layer_count=model.layer_count,
        segments=tuple(layout.segments),
        total_bytes=layout.position,
        part_files=model.part_files,
        resident_tensors=tuple(tensor for _, tensor in tensors),
    )


NamedTensor = tuple[str, TensorInfo]
"""A tensor and its name in the slice; `TensorInfo.name` is the whole model's."""


def _select_tensors(
    model: GgufModel, start: int, end: int, rules: SliceRules
) -> list[NamedTensor]:
    selected: list[NamedTensor] = []
    for tensor in model.tensors:
        block = block_tensor(tensor.name)
        if block is None:
            selected.extend(_outside_blocks(model, tensor, start, end, rules))
        elif start <= block.layer < end:
            index = block.layer - start if rules.renumber_blocks else block.layer
            selected.append((f"blk.{index}.{block.suffix}", tensor))
    return selected


def _outside_blocks(
    model: GgufModel, tensor: TensorInfo, start: int, end: int, rules: SliceRules
) -> Iterable[NamedTensor]:
    """What a stage holds of one tensor that belongs to no layer."""
    is_first, is_final = start == 0, end == model.layer_count
    kept: TensorInfo | None = tensor
    if tensor.name == INPUT_EMBEDDING and not is_first:
        kept = _later_embedding(model, tensor, is_final=is_final, rules=rules)
    elif tensor.name in OUTPUT_TENSORS and not is_final:
        kept = None if rules.drop_output else tensor
    elif tensor.name.startswith("rope_") and not is_first:
        kept = tensor if rules.keep_rope_factors else None
    return () if kept is None else ((tensor.name, kept),)


def _later_embedding(
    model: GgufModel, tensor: TensorInfo, *, is_final: bool, rules: SliceRules
) -> TensorInfo | None:
    """`token_embd` of a stage that is fed activations: the loader demands one."""
    width = tensor.shape[0]
    if not is_final:
        one_row = _zeros(tensor.name, (width, 1), F32)
        return one_row if rules.hollow_embedding else None
    if is_tied(model):
        return tensor if rules.keep_tied_embedding else None
    if not rules.declare_untied_embedding:
        return None
    kind = next(k for k in PLACEHOLDER_TYPES if width % k.block_weights == 0)
    return _zeros(tensor.name, tensor.shape, kind)


def is_tied(model: GgufModel) -> bool:
    """Whether the token embedding is also the vocabulary projection."""
    return all(tensor.name != OUTPUT_WEIGHT for tensor in model.tensors)


def _zeros(name: str, shape: tuple[int, ...], kind: TensorType) -> TensorInfo:
    rows = 1
    for length in shape[1:]:
        rows *= length
    return TensorInfo(
        name=name,
        shape=shape,
        type=kind,
        nbytes=kind.row_bytes(shape[0]) * rows,
        part=-1,
        file_offset=0,
    )


@attrs.define
class _Layout:
    """Lays segments end to end and joins neighbours that are neighbours on disk."""

    model: GgufModel
    position: int = attrs.field(default=0, init=False)
    segments: list[Segment] = attrs.field(factory=list, init=False)

    def add_header(
        self,
        metadata: SliceMetadata,
        tensors: list[NamedTensor],
    ) -> None:
        counts = (WRITTEN_VERSION, len(tensors), metadata.key_count)
        self._add_bytes(GGUF_MAGIC + struct.pack("<IQQ", *counts))
        for piece in metadata.pieces:
            if isinstance(piece, HeaderRange):
                self._add_range(piece.end - piece.start, FileRange(0, piece.start))
            else:
                self._add_bytes(piece)
        self._add_bytes(_tensor_table(tensors, self.model.alignment))
        self._pad()

    def add_tensor(self, tensor: TensorInfo) -> None:
        if tensor.is_synthetic:
            self._append(tensor.nbytes, Zeros())
            self._pad()
            return
        padded = round_up(tensor.nbytes, self.model.alignment)
        on_disk = self.model.part_files[tensor.part].file_bytes - tensor.file_offset
        # Padding read along with the data keeps a run of tensors one range; what lies
        # there is never looked at.
        length = padded if padded <= on_disk else tensor.nbytes
        self._add_range(length, FileRange(tensor.part, tensor.file_offset))
        self._pad()

    def _pad(self) -> None:
        padded = round_up(self.position, self.model.alignment)
        self._add_bytes(bytes(padded - self.position))

    def _add_bytes(self, data: bytes) -> None:
        last = self.segments[-1] if self.segments else None
        if last is not None and isinstance(last.data, bytes):
            self._grow(last, len(data), last.data + data)
        elif data:
            self._append(len(data), data)

    def _add_range(self, length: int, data: FileRange) -> None:
        last = self.segments[-1] if self.segments else None
        if (
            last is not None
            and isinstance(last.data, FileRange)
            and last.data.part_index == data.part_index
            and last.data.file_offset + last.length == data.file_offset
        ):
            self._grow(last, length, last.data)
        else:
            self._append(length, data)

    def _grow(self, last: Segment, length: int, data: bytes | FileRange) -> None:
        self.segments[-1] = Segment(
            offset=last.offset, length=last.length + length, data=data
        )
        self.position += length

    def _append(self, length: int, data: bytes | FileRange | Zeros) -> None:
        self.segments.append(Segment(offset=self.position, length=length, data=data))
        self.position += length


def _tensor_table(tensors: list[NamedTensor], alignment: int) -> bytes:
    rows: list[bytes] = []
    offset = 0
    for name, tensor in tensors:
        dimensions = len(tensor.shape)
        rows.append(packed_string(name))
        rows.append(struct.pack(f"<I{dimensions}Q", dimensions, *tensor.shape))
        rows.append(struct.pack("<IQ", tensor.type.code, offset))
        offset = round_up(offset + tensor.nbytes, alignment)
    return b"".join(rows)
