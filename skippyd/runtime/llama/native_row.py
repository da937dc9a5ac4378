"""One row run natively from its input to its departure; see `next_token.cpp`."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from skippyd.runtime.failures import SamplingError
from skippyd.runtime.llama.batch import RowArrays
from skippyd.runtime.llama.bindings import address_of, buffer_address, llama
from skippyd.runtime.llama.capture import NativeCapture
from skippyd.runtime.llama.native import (
    ERROR_BYTES,
    THREW,
    Row,
    error_text,
    native,
)


if TYPE_CHECKING:
    from skippyd.runtime.llama.context import StageContext
    from skippyd.runtime.llama.sampler import SamplerChain

NOWHERE = -1


class NativeRow:
    """The next row of one sequence, again and again.

    Args:
        context: What computes it.
        library: The native library.
        sequence: Whose row it is.
        by_token: Whether a token id enters, and not an activation.
    """

    def __init__(
        self,
        context: StageContext,
        library: ctypes.CDLL,
        sequence: int,
        *,
        by_token: bool,
    ) -> None:
        self.arrays = RowArrays(sequence, context.width, by_token=by_token)
        self.output: bytearray | None = None
        self._library = library
        self._context = context
        self._head = bytearray()
        self._error = ctypes.create_string_buffer(ERROR_BYTES)
        self._row = Row(
            decode=context.decode_address,
            context=ctypes.cast(context.pointer, ctypes.c_void_p).value,
            batch=ctypes.addressof(self.arrays.batch),
            descriptor=NOWHERE,
            token_input=self.arrays.token_address if by_token else None,
            sample=address_of(llama()._lib.llama_sampler_sample),  # noqa: SLF001 - its address is wanted
        )
        if isinstance(context.capture, NativeCapture):
            self.output = bytearray(4 * context.width)
            self._row.capture = context.capture.address
            self._row.output = buffer_address(self.output)
            self._row.output_bytes = len(self.output)
        self._address = ctypes.addressof(self._row)

    def deliver(
        self, head: bytearray, token_at: tuple[int, int], descriptor: int = NOWHERE
    ) -> None:
        """Write each token into `head`, and send head and output to a socket.

        On the final stage it is the drawn token that is written and sent.
        """
        self._head = head
        self._row.head, self._row.head_bytes = buffer_address(head), len(head)
        self._row.token_at[:] = token_at
        self._row.descriptor = descriptor

    def deliver_nowhere(self) -> None:
        """Send nothing from now on; from any thread."""
        self._row.descriptor = NOWHERE

    def draw_with(self, sampler: SamplerChain | None) -> None:
        """Let a chain draw from the logits, or nobody."""
        self._row.sampler = None if sampler is None else sampler.address

    def run(self, token: int) -> None:
        """Run the row.

        Raises:
            EngineError: As `StageContext.decode`.
        """
        code = self._library.skippy_run_row(
            self._address, token, self._error, ERROR_BYTES
        )
        if code != 0:
            raise self._context.failure(code, 1, self._error)
        if self.output is not None:
            assert self._context.capture is not None
            self._context.capture.check(self.output)

    @property
    def sent_bytes(self) -> int:
        """Bytes of head and output that the socket has taken."""
        return int(self._row.sent_bytes)

    @property
    def sending_ns(self) -> int:
        """How long the sending took; it is part of the run."""
        return int(self._row.sending_ns)

    @property
    def drawn(self) -> int:
        """The token that was drawn.

        Raises:
            SamplingError: The chain threw, or chose nothing.
        """
        token = int(self._row.drawn)
        if token < 0:
            reason = error_text(self._error) if token == THREW else "no candidate"
            raise SamplingError(f"the sampler chain failed: {reason}")
        return token


def native_row(
    context: StageContext, sequence: int, *, by_token: bool
) -> NativeRow | None:
    """A sequence's next row; None where Python captures or draws."""
    library = native()
    captures_natively = isinstance(context.capture, NativeCapture | None)
    if library is None or not captures_natively:
        return None
    return NativeRow(context, library, sequence, by_token=by_token)
