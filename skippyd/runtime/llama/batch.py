"""Batches: which rows llama.cpp computes together, and the arrays behind them.

Everything llama.cpp would abort the process for is checked before the call.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import attrs

from skippyd.runtime.failures import BadBatchError
from skippyd.runtime.llama.bindings import buffer_address, llama
from skippyd.units import I32_MAX


if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.define(kw_only=True)
class BatchPart:
    """Rows of one sequence in one batch.

    Args:
        sequence: Sequence id, 0 to lane_count - 1.
        position: Position of the first row.
        tokens: Token ids, on the first stage.
        activation: f32 bytes, rows x width, on later stages.
        wants_logits: Whether the last row's logits are needed (final stage only).
    """

    sequence: int
    position: int
    tokens: Sequence[int] = ()
    activation: bytes | bytearray | memoryview | None = None
    wants_logits: bool = False


def check_tokens(tokens: Sequence[int], vocabulary_size: int) -> None:
    """Refuse token ids outside the vocabulary: llama.cpp indexes with them.

    Raises:
        BadBatchError: Names the first kind of offender.
    """
    if not tokens:
        return
    lowest, highest = min(tokens), max(tokens)
    if lowest < 0 or highest >= vocabulary_size:
        bad = lowest if lowest < 0 else highest
        raise BadBatchError(f"token {bad} is outside 0..{vocabulary_size - 1}")


class BatchArrays:
    """Arrays behind two `llama_batch`es, by token and by activation.

    Plain C arrays written by slices, and both batches prepared once: numpy's views and
    ctypes' casts cost a single row more than the rest of its step.
    """

    def __init__(self, capacity: int, width: int) -> None:
        self.capacity = capacity
        self._row_bytes = 4 * width
        self.tokens = (ctypes.c_int32 * capacity)()
        self.positions = (ctypes.c_int32 * capacity)()
        self.flags = (ctypes.c_int8 * capacity)()
        self.sequences = (ctypes.c_int32 * capacity)()
        self.activations = bytearray(capacity * self._row_bytes)
        self._counts = (ctypes.c_int32 * capacity)(*[1] * capacity)
        first, step = ctypes.addressof(self.sequences), ctypes.sizeof(ctypes.c_int32)
        self._pointers = (ctypes.c_void_p * capacity)(
            *range(first, first + step * capacity, step)
        )
        self._by_token = self._batch("token", ctypes.addressof(self.tokens))
        self._by_activation = self._batch("embd", buffer_address(self.activations))

    def fill(
        self,
        parts: Sequence[BatchPart],
        *,
        flag_all: bool,
        sequences: int,
        vocabulary_size: int,
    ) -> Any:  # noqa: ANN401 - ctypes structure
        """Write the parts into the arrays; returns the batch of all their rows."""
        by_token = bool(parts) and parts[0].activation is None
        row = 0
        for part in parts:
            if (part.activation is None) is not by_token:
                raise BadBatchError("one batch mixes token ids and activations")
            if not 0 <= part.sequence < sequences:
                raise BadBatchError(
                    f"sequence {part.sequence} is outside 0..{sequences - 1}"
                )
            count = self._rows_of(part)
            end = row + count
            if end > self.capacity:
                raise BadBatchError(
                    f"batch of {end} rows is above n_batch {self.capacity}"
                )
            self._fill_input(part, row, end, vocabulary_size)
            self.positions[row:end] = [*range(part.position, part.position + count)]
            self.sequences[row:end] = [part.sequence] * count
            self.flags[row:end] = [flag_all] * count
            self.flags[end - 1] = flag_all or part.wants_logits
            row = end
        if row == 0:
            raise BadBatchError("the batch is empty")
        batch = self._by_token if by_token else self._by_activation
        batch.n_tokens = row
        return batch

    def _rows_of(self, part: BatchPart) -> int:
        if part.activation is None:
            count = len(part.tokens)
        else:
            count, rest = divmod(len(part.activation), self._row_bytes)
            if rest:
                raise BadBatchError(
                    f"activation of {len(part.activation)} bytes is no multiple of "
                    f"the width {self._row_bytes // 4} x 4"
                )
            if part.tokens and len(part.tokens) != count:
                raise BadBatchError(
                    f"{count} rows of activation with {len(part.tokens)} tokens"
                )
        if count == 0 or not 0 <= part.position <= I32_MAX - count:
            raise BadBatchError(f"{count} rows at position {part.position}")
        return count

    def _fill_input(
        self, part: BatchPart, row: int, end: int, vocabulary_size: int
    ) -> None:
        if part.activation is not None:
            begin_byte, end_byte = row * self._row_bytes, end * self._row_bytes
            memoryview(self.activations)[begin_byte:end_byte] = part.activation
            return
        check_tokens(part.tokens, vocabulary_size)
        self.tokens[row:end] = [*part.tokens]

    def _batch(self, input_field: str, input_address: int) -> Any:  # noqa: ANN401 - ctypes structure
        batch = llama().llama_batch()
        kinds = dict(batch._fields_)
        for field, address in (
            (input_field, input_address),
            ("pos", ctypes.addressof(self.positions)),
            ("n_seq_id", ctypes.addressof(self._counts)),
            ("seq_id", ctypes.addressof(self._pointers)),
            ("logits", ctypes.addressof(self.flags)),
        ):
            pointer = ctypes.cast(ctypes.c_void_p(address), kinds[field])
            setattr(batch, field, pointer)
        return batch


class RowArrays:
    """One row of one sequence, of which everything is written ahead but its input.

    Args:
        sequence: Whose row it is.
        width: Floats of one activation row.
        by_token: Whether a token id enters, and not an activation.
    """

    def __init__(self, sequence: int, width: int, *, by_token: bool) -> None:
        self._arrays = BatchArrays(1, width)
        part = BatchPart(
            sequence=sequence,
            position=0,
            tokens=[0] if by_token else (),
            activation=None if by_token else bytes(4 * width),
        )
        self.batch = self._arrays.fill(
            [part], flag_all=True, sequences=sequence + 1, vocabulary_size=1
        )

    @property
    def activation(self) -> bytearray:
        """Where the input goes when it is an activation."""
        return self._arrays.activations

    def stand_at(self, position: int) -> None:
        """Say where the row is in its sequence."""
        self._arrays.positions[0] = position

    @property
    def token_address(self) -> int:
        """Where the input goes when it is a token."""
        return ctypes.addressof(self._arrays.tokens)
