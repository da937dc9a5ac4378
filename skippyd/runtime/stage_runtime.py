"""A loaded layer range that runs steps of sessions: the real `StageRuntime`.

Each step is one job on the engine thread: rewind if the message's position says so,
run the batch, draw if asked. After a failed batch the session is cut back to where it
was, so that it neither keeps half a chunk nor lies about its length.
"""

from __future__ import annotations

import collections
import functools
import time
from typing import TYPE_CHECKING

from skippyd.runtime.engine import load_engine
from skippyd.runtime.failures import BadBatchError, EngineError
from skippyd.runtime.interface import RuntimeStatistics, StepResult
from skippyd.runtime.llama.batch import BatchPart, check_tokens
from skippyd.runtime.llama.native_row import native_row
from skippyd.runtime.llama.sampler import SamplerChain
from skippyd.runtime.llama.vocabulary import LlamaVocabulary
from skippyd.runtime.ready_row import ReadyRow
from skippyd.runtime.sessions import SessionTable, cut_session


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from skippyd.core.wire.sampling import SamplingBlock
    from skippyd.model.slicing import ModelSlice
    from skippyd.runtime.engine import Engine
    from skippyd.runtime.llama.context import StageContext
    from skippyd.runtime.sessions import Session
    from skippyd.runtime.settings import EngineSettings

    LogitsSink = Callable[[int, np.ndarray[tuple[int], np.dtype[np.float32]]], None]

TIMED_STEPS = 4096


class LlamaStageRuntime:
    """The runtime over one engine.

    Args:
        engine: The engine; owned from here on.
        model_slice: What it holds; the final slice draws tokens.
        logits_sink: Called on the final stage with (position, logits) of each
            predicted row before the draw.
    """

    def __init__(
        self,
        engine: Engine,
        model_slice: ModelSlice,
        logits_sink: LogitsSink | None = None,
    ) -> None:
        self._engine = engine
        self.model_slice = model_slice
        self.is_final = model_slice.is_final
        self._logits_sink = logits_sink
        self._sessions = SessionTable(engine.context.settings.lane_count)
        self._steps = 0
        self._prefill_tokens = 0
        self._decode_ns: collections.deque[int] = collections.deque(maxlen=TIMED_STEPS)

    @property
    def width(self) -> int:
        """Floats of one activation row."""
        return self._engine.context.width

    @functools.cached_property
    def vocabulary(self) -> LlamaVocabulary:
        """The model's vocabulary; empty on a middle stage."""
        return LlamaVocabulary(self._engine.model)

    @property
    def settings(self) -> EngineSettings:
        """What the engine was told."""
        return self._engine.context.settings

    def step(
        self,
        session_id: int,
        *,
        position: int,
        tokens: Sequence[int],
        activation: bytes | bytearray | memoryview | None,
        predict: bool,
    ) -> StepResult:
        """Run rows of one session; a position behind its end rewinds it first.

        Raises:
            EngineError: In one of its kinds; the session is as it was before, cut
                back to `position` when the step was a rewind. A session that the step
                would have begun is not there.
        """
        asked = time.perf_counter_ns()

        def job(context: StageContext) -> StepResult:
            started = time.perf_counter_ns()
            found = self._sessions.find(session_id)
            session = self._session_at(context, session_id, found, position)
            part = BatchPart(
                sequence=session.sequence,
                position=position,
                tokens=tokens,
                activation=activation,
                wants_logits=predict and self.is_final,
            )
            try:
                result = self._run(context, session, part)
            except EngineError:
                if found is None:
                    self._sessions.close(session_id)
                raise
            result.wait_ns = started - asked
            return result

        return self._engine.call(job)

    def ready_row(self, session_id: int) -> ReadyRow | None:
        """The session's next row, made ready; None when there is no such session."""
        session = self._sessions.find(session_id)
        if session is None:
            return None
        if session.row is None:
            native = native_row(
                self._engine.context,
                session.sequence,
                by_token=self.model_slice.is_first,
            )
            if native is None:
                return None
            session.row = ReadyRow(self._engine, self, session, native)
        session.row.make_ready()
        return session.row

    @property
    def tells_logits(self) -> bool:
        """Whether somebody is told the logits before each draw."""
        return self._logits_sink is not None

    def configure(self, session_id: int, sampling: SamplingBlock | None) -> None:
        """Set how the final stage draws for a session.

        Raises:
            SamplingError: The block names something that is not served.
            KvFullError: The session is new and every sequence is taken.
        """

        def job(context: StageContext) -> None:
            # Made first: a block that is refused changes no session and opens none.
            sampler = SamplerChain(sampling, context) if self.is_final else None
            try:
                session = self._sessions.open(session_id)
            except EngineError:
                if sampler is not None:
                    sampler.close()
                raise
            session.drop_sampler()
            session.sampling, session.sampler = sampling, sampler

        self._engine.call(job)

    def trim(self, session_id: int, keep: int) -> None:
        """Forget what a session holds from a position on.

        Raises:
            BadBatchError: There is no such session, or the position is negative.
        """

        def job(context: StageContext) -> None:
            if keep < 0:
                raise BadBatchError(f"session {session_id} cannot be cut to {keep}")
            session = self._sessions.require(session_id)
            cut_session(context, session, keep)

        self._engine.call(job)

    def release(self, session_id: int) -> bool:
        """Forget a session whole; False when there was none."""

        def job(context: StageContext) -> bool:
            session = self._sessions.close(session_id)
            if session is None:
                return False
            context.trim(session.sequence, 0)
            return True

        return self._engine.call(job)

    def statistics(self) -> RuntimeStatistics:
        """Current counters; does not wait for the engine."""
        capture = self._engine.context.capture
        return RuntimeStatistics(
            sessions=len(self._sessions),
            session_limit=self._sessions.limit,
            steps=self._steps,
            prefill_tokens=self._prefill_tokens,
            decode_ns=tuple(self._decode_ns.copy()),
            resident_tensor_bytes=self.model_slice.resident_tensor_bytes,
            loaded_bytes=self._engine.model.bytes_read,
            capture=capture.name if capture is not None else "none",
        )

    def abort(self) -> None:
        """End the running batch and refuse later ones."""
        self._engine.abort()

    def close(self) -> None:
        """Stop the engine and free everything."""
        self._engine.stop()

    def _session_at(
        self,
        context: StageContext,
        session_id: int,
        found: Session | None,
        position: int,
    ) -> Session:
        held = found.length if found is not None else 0
        if position > held:
            raise BadBatchError(
                f"session {session_id} holds {held} positions, "
                f"the message begins at {position}"
            )
        session = self._sessions.open(session_id) if found is None else found
        if position < held:
            cut_session(context, session, position)
        return session

    def _run(
        self, context: StageContext, session: Session, part: BatchPart
    ) -> StepResult:
        begun = time.perf_counter_ns()
        try:
            if self.is_final:
                # The sampler chain indexes its tables with the sideband's tokens.
                check_tokens(part.tokens, context.model.vocabulary_size)
            rows = context.decode([part])
            session.length = context.length(session.sequence)
            session.tokens.extend(part.tokens)
            count = session.length - part.position
            token = self.draw(context, session, count) if part.wants_logits else None
        except EngineError:
            cut_session(context, session, part.position)
            raise
        compute_ns = time.perf_counter_ns() - begun
        self.count(count, compute_ns)
        return StepResult(
            activation=None if rows is None else memoryview(rows),
            token=token,
            compute_ns=compute_ns,
        )

    def draw(self, context: StageContext, session: Session, count: int) -> int:
        """Draw what follows a session from the last of `count` rows just computed."""
        if self._logits_sink is not None:
            self._logits_sink(session.length - 1, context.logits(count - 1))
        if session.sampler is None:
            session.sampler = SamplerChain(session.sampling, context)
        if len(session.tokens) != session.length:
            raise BadBatchError(
                f"the session holds {session.length} positions but was told "
                f"{len(session.tokens)} tokens; send the token sideband"
            )
        return session.sampler.draw(count - 1, session.tokens)

    def count(self, rows: int, compute_ns: int) -> None:
        """Count a step that was run."""
        self._steps += 1
        if rows == 1:
            self._decode_ns.append(compute_ns)
        else:
            self._prefill_tokens += rows


def load_stage_runtime(
    model_slice: ModelSlice,
    settings: EngineSettings,
    *,
    progress: Callable[[float], None] | None = None,
    logits_sink: LogitsSink | None = None,
) -> LlamaStageRuntime:
    """Load a slice into a runtime; blocks, call it off the trio thread.

    Raises:
        ModelError: llama.cpp refused the slice or the context.
    """
    engine = load_engine(model_slice, settings, progress)
    return LlamaStageRuntime(engine, model_slice, logits_sink)
