"""A session's next row, made ready before its input is there.

Between the input's arrival and the output's departure nothing should run but llama.cpp:
a model's weights have just gone through the caches, so that every line of Python in
between is paid with memory's own speed. Position, arrays, sampler and buffers are
therefore prepared while the stage waits for the rest of the chain.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from skippyd.runtime.failures import EngineError
from skippyd.runtime.interface import StepResult
from skippyd.runtime.llama.native_row import NOWHERE
from skippyd.runtime.sessions import cut_session
from skippyd.units import I32_MAX


if TYPE_CHECKING:
    from skippyd.runtime.engine import Engine
    from skippyd.runtime.llama.context import StageContext
    from skippyd.runtime.llama.native_row import NativeRow
    from skippyd.runtime.sessions import Session
    from skippyd.runtime.stage_runtime import LlamaStageRuntime

NO_TOKEN = -1


class ReadyRow:
    """One session's next row; belongs to the thread that steps the session.

    Args:
        engine: What runs it.
        runtime: Whose session it is.
        session: The session.
        native: The row itself.
    """

    def __init__(
        self,
        engine: Engine,
        runtime: LlamaStageRuntime,
        session: Session,
        native: NativeRow,
    ) -> None:
        self._engine = engine
        self._runtime = runtime
        self._session = session
        self._native = native
        held = runtime.model_slice
        # A middle stage has no vocabulary; it passes tokens on and looks at none.
        has_vocabulary = held.is_first or held.is_final
        self._token_limit = (
            engine.context.model.vocabulary_size if has_vocabulary else I32_MAX + 1
        )
        self._position = 0
        self._changes = 0
        self._token = 0
        self._drawn_after = NO_TOKEN
        self._asked_ns = 0

    @property
    def input(self) -> bytearray:
        """Where the activation goes before the run; of no use on the first stage."""
        return self._native.arrays.activation

    def deliver(
        self, head: bytearray, token_at: tuple[int, int], descriptor: int = NOWHERE
    ) -> None:
        """Send what is computed; see `skippyd.runtime.interface.NextRow`."""
        self._native.deliver(head, token_at, descriptor)

    def deliver_nowhere(self) -> None:
        """Send nothing from now on; from any thread."""
        self._native.deliver_nowhere()

    def make_ready(self) -> None:
        """Stand behind what the session holds now."""
        session = self._session
        self._position, self._changes = session.length, session.changes
        self._native.arrays.stand_at(self._position)
        expected: int | None = None
        if session.sampler is not None and not self._runtime.tells_logits:
            expected = session.sampler.due(self._position + 1)
        self._drawn_after = NO_TOKEN if expected is None else expected
        self._native.draw_with(None if expected is None else session.sampler)

    def run(self, token: int) -> StepResult | None:
        """Run the row; see `skippyd.runtime.interface.NextRow`."""
        if not 0 <= token < self._token_limit:
            return None
        self._token = token
        self._asked_ns = time.perf_counter_ns()
        return self._engine.call(self._run)

    def _run(self, context: StageContext) -> StepResult | None:
        begun = time.perf_counter_ns()
        session, native = self._session, self._native
        is_same = session.is_open and session.changes == self._changes
        if session.length != self._position or not is_same:
            return None
        is_drawn = self._drawn_after == self._token
        if not is_drawn:
            native.draw_with(None)
        elif session.sampler is not None:
            session.sampler.reseed(self._position + 1)
        token: int | None = None
        try:
            native.run(self._token)
            session.length = self._position + 1
            session.tokens.append(self._token)
            if native.output is None:
                token = self._drawn(context) if is_drawn else self._draw(context)
        except EngineError as error:
            cut_session(context, session, self._position)
            if native.sent_bytes:
                # No kind that leaves the rest of the chain in step with this stage.
                raise EngineError(f"after the row was passed on: {error}") from error
            raise
        compute_ns = time.perf_counter_ns() - begun - native.sending_ns
        self._runtime.count(1, compute_ns)
        return StepResult(
            activation=None if native.output is None else memoryview(native.output),
            token=token,
            sent_bytes=native.sent_bytes,
            compute_ns=compute_ns,
            wait_ns=begun - self._asked_ns,
        )

    def _drawn(self, _context: StageContext) -> int:
        token = self._native.drawn
        assert self._session.sampler is not None
        self._session.sampler.drew(token)
        return token

    def _draw(self, context: StageContext) -> int:
        return self._runtime.draw(context, self._session, 1)
