"""Kinds of GGUF values and of tensor data, with their sizes.

Codes and block sizes are those of ggml in llama-cpp-python 0.3.36; a code that is
missing here cannot be loaded by that build either.
"""

from __future__ import annotations

from enum import IntEnum

import attrs


class ValueKind(IntEnum):
    """Type code of a metadata value."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


SCALAR_FORMATS: dict[ValueKind, str] = {
    ValueKind.UINT8: "B",
    ValueKind.INT8: "b",
    ValueKind.UINT16: "H",
    ValueKind.INT16: "h",
    ValueKind.UINT32: "I",
    ValueKind.INT32: "i",
    ValueKind.FLOAT32: "f",
    ValueKind.BOOL: "B",
    ValueKind.UINT64: "Q",
    ValueKind.INT64: "q",
    ValueKind.FLOAT64: "d",
}
"""`struct` codes of the fixed-size kinds, little-endian."""

SCALAR_BYTES: dict[ValueKind, int] = {
    ValueKind.UINT8: 1,
    ValueKind.INT8: 1,
    ValueKind.UINT16: 2,
    ValueKind.INT16: 2,
    ValueKind.UINT32: 4,
    ValueKind.INT32: 4,
    ValueKind.FLOAT32: 4,
    ValueKind.BOOL: 1,
    ValueKind.UINT64: 8,
    ValueKind.INT64: 8,
    ValueKind.FLOAT64: 8,
}


@attrs.frozen
class TensorType:
    """One ggml data type: `block_weights` weights take `block_bytes` bytes."""

    code: int
    name: str
    block_weights: int = attrs.field(kw_only=True)
    block_bytes: int = attrs.field(kw_only=True)

    def row_bytes(self, weights: int) -> int:
        """Bytes of a row of `weights` weights, a multiple of the block."""
        assert weights % self.block_weights == 0
        return weights // self.block_weights * self.block_bytes


def _table(*rows: tuple[int, str, int, int]) -> dict[int, TensorType]:
    return {
        code: TensorType(code, name, block_weights=weights, block_bytes=size)
        for code, name, weights, size in rows
    }


TENSOR_TYPES: dict[int, TensorType] = _table(
    (0, "f32", 1, 4),
    (1, "f16", 1, 2),
    (2, "q4_0", 32, 18),
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34),
    (9, "q8_1", 32, 36),
    (10, "q2_K", 256, 84),
    (11, "q3_K", 256, 110),
    (12, "q4_K", 256, 144),
    (13, "q5_K", 256, 176),
    (14, "q6_K", 256, 210),
    (15, "q8_K", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (30, "bf16", 1, 2),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
    (42, "q2_0", 64, 18),
)
"""Every data type of the build, by its code."""

TENSOR_TYPES_BY_NAME: dict[str, TensorType] = {
    kind.name: kind for kind in TENSOR_TYPES.values()
}

F32 = TENSOR_TYPES_BY_NAME["f32"]

PLACEHOLDER_TYPES: tuple[TensorType, ...] = tuple(
    TENSOR_TYPES_BY_NAME[name] for name in ("q1_0", "q2_0", "q4_0", "f16")
)
"""Types for a matrix that must be declared but is never read: fewest bytes first.

Each has a row lookup on the CPU, which the loader asks for; f16 divides any width.
"""
