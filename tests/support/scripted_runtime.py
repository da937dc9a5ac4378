"""A runtime without a model: what it computes can be told by looking, and held up."""

from __future__ import annotations

import collections
import os
import struct
import threading
from typing import TYPE_CHECKING

import attrs

from skippyd.runtime.failures import (
    AbortedError,
    BadBatchError,
    EngineError,
    KvFullError,
)
from skippyd.runtime.interface import RuntimeStatistics, StepResult


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.wire.sampling import SamplingBlock

WIDTH = 4
GATE_S = 10.0


@attrs.frozen
class Step:
    """One step as it was asked for."""

    session_id: int
    position: int
    tokens: tuple[int, ...]
    activation: bytes | None
    predict: bool


def next_token(tokens: Sequence[int]) -> int:
    """What the script's final stage draws after these tokens."""
    return (sum(tokens) * 31 + len(tokens)) % 997


@attrs.define(eq=False, kw_only=True)
class ScriptedRuntime:
    """Implements `StageRuntime`; thread-safe like the real one.

    A row's activation is the stage's index, the position and the token. The final stage
    draws `next_token` of all tokens of the session.

    Args:
        index: The stage, written into its activations.
        is_final: Whether it draws.
        session_limit: Sessions it has room for.
    """

    index: int
    is_final: bool
    session_limit: int = 8
    width: int = WIDTH
    steps: list[Step] = attrs.Factory(list)
    configured: dict[int, SamplingBlock | None] = attrs.Factory(dict)
    sessions: dict[int, list[int]] = attrs.Factory(dict)
    failures: collections.deque[Exception] = attrs.Factory(collections.deque)
    """Raised by the next steps, one each."""
    release_failure: EngineError | None = None
    """Raised by every release."""
    gate: threading.Event = attrs.Factory(threading.Event)
    """Steps wait for it; it is open unless a test closes it."""
    reached: threading.Event = attrs.Factory(threading.Event)
    """Set when a step has begun."""
    rows: dict[int, ScriptedRow] = attrs.Factory(dict)
    """Rows that were made ready, by session."""
    sent_share: float = 1.0
    """How much of its frame a row sends itself."""
    _is_aborted: bool = False
    _lock: threading.Lock = attrs.Factory(threading.Lock)

    def __attrs_post_init__(self) -> None:
        self.gate.set()

    def step(
        self,
        session_id: int,
        *,
        position: int,
        tokens: Sequence[int],
        activation: bytes | bytearray | memoryview | None,
        predict: bool,
    ) -> StepResult:
        """See `StageRuntime.step`."""
        self.reached.set()
        assert self.gate.wait(GATE_S), "the test did not open the gate"
        with self._lock:
            self._check(session_id)
            held = self.sessions.setdefault(session_id, [])
            if position > len(held):
                raise BadBatchError(f"holds {len(held)}, asked for {position}")
            given = None if activation is None else bytes(activation)
            step = Step(session_id, position, tuple(tokens), given, predict)
            self.steps.append(step)
            held[position:] = tokens
            return self._result(step, held)

    def ready_row(self, session_id: int) -> ScriptedRow | None:
        """See `StageRuntime.ready_row`."""
        with self._lock:
            if session_id not in self.sessions:
                return None
            row = self.rows.setdefault(session_id, ScriptedRow(self, session_id))
        row.make_ready()
        return row

    def configure(self, session_id: int, sampling: SamplingBlock | None) -> None:
        """See `StageRuntime.configure`."""
        with self._lock:
            self._check(session_id)
            self.sessions.setdefault(session_id, [])
            self.configured[session_id] = sampling

    def trim(self, session_id: int, keep: int) -> None:
        """See `StageRuntime.trim`."""
        with self._lock:
            if session_id not in self.sessions:
                raise BadBatchError(f"unknown session {session_id}")
            del self.sessions[session_id][keep:]

    def release(self, session_id: int) -> bool:
        """See `StageRuntime.release`."""
        if self.release_failure is not None:
            raise self.release_failure
        with self._lock:
            return self.sessions.pop(session_id, None) is not None

    def statistics(self) -> RuntimeStatistics:
        """See `StageRuntime.statistics`."""
        return RuntimeStatistics(
            sessions=len(self.sessions),
            session_limit=self.session_limit,
            steps=len(self.steps),
            prefill_tokens=sum(len(s.tokens) for s in self.steps if not s.predict),
            decode_ns=(),
            resident_tensor_bytes=0,
            loaded_bytes=0,
            capture="none",
        )

    def abort(self) -> None:
        """See `StageRuntime.abort`."""
        self._is_aborted = True
        self.gate.set()

    def _check(self, session_id: int) -> None:
        if self._is_aborted:
            raise AbortedError("the engine is stopped")
        if self.failures:
            raise self.failures.popleft()
        is_new = session_id not in self.sessions
        if is_new and len(self.sessions) >= self.session_limit:
            raise KvFullError(f"all {self.session_limit} sequences are taken")

    def _result(self, step: Step, held: list[int]) -> StepResult:
        if self.is_final:
            return StepResult(token=next_token(held) if step.predict else None)
        rows = b"".join(
            struct.pack("<4f", self.index, step.position + number, token, 0.0)
            for number, token in enumerate(step.tokens)
        )
        return StepResult(activation=memoryview(rows), compute_ns=1000)


@attrs.define(eq=False)
class ScriptedRow:
    """Implements `NextRow` on the steps of a scripted runtime."""

    runtime: ScriptedRuntime
    session_id: int
    runs: int = 0
    """Rows that were run, and not refused."""
    input: bytearray = attrs.Factory(lambda: bytearray(4 * WIDTH))
    _position: int = 0
    _head: bytearray = attrs.Factory(bytearray)
    _token_at: tuple[int, int] = (0, 0)
    _descriptor: int = -1

    def make_ready(self) -> None:
        """See `NextRow.make_ready`."""
        self._position = len(self.runtime.sessions.get(self.session_id, ()))

    def deliver(
        self, head: bytearray, token_at: tuple[int, int], descriptor: int = -1
    ) -> None:
        """See `NextRow.deliver`."""
        self._head, self._token_at, self._descriptor = head, token_at, descriptor

    def deliver_nowhere(self) -> None:
        """See `NextRow.deliver_nowhere`."""
        self._descriptor = -1

    def run(self, token: int) -> StepResult | None:
        """See `NextRow.run`."""
        held = self.runtime.sessions.get(self.session_id)
        if held is None or len(held) != self._position:
            return None
        result = self.runtime.step(
            self.session_id,
            position=self._position,
            tokens=(token,),
            activation=None if self.runtime.index == 0 else self.input,
            predict=True,
        )
        self.runs += 1
        self._name(token if result.token is None else result.token)
        result.sent_bytes = self._send(result.activation or b"")
        return result

    def _name(self, token: int) -> None:
        if self._head:
            for at in self._token_at:
                struct.pack_into("<i", self._head, at, token)

    def _send(self, activation: bytes | memoryview) -> int:
        if self._descriptor < 0:
            return 0
        frame = b"".join((self._head, activation))
        share = int(len(frame) * self.runtime.sent_share)
        # Of the very descriptor: that it is not somebody else's is promised too.
        return os.write(self._descriptor, frame[:share]) if share else 0


def defect() -> EngineError:
    """A failure that nobody foresaw."""
    return EngineError("llama_decode returned -3")
