"""What the stage room asks of a runtime; tests put a scripted one behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.core.wire.sampling import SamplingBlock


@attrs.define(kw_only=True)
class StepResult:
    """What one step of one session gave.

    Args:
        activation: f32 rows for the next stage, None on the final stage.
        token: The drawn token, None unless one was asked for.
        sent_bytes: What the step itself has sent of its frame: see `NextRow`.
        compute_ns: Time the engine computed, without waiting for it.
        wait_ns: Time spent waiting for the engine.
    """

    activation: memoryview | None = None
    token: int | None = None
    sent_bytes: int = 0
    compute_ns: int = 0
    wait_ns: int = 0


@attrs.frozen(kw_only=True)
class RuntimeStatistics:
    """A snapshot of a runtime; all counters since start.

    Args:
        sessions: Live sessions.
        session_limit: Sessions that may live at the same time.
        steps: Steps run.
        prefill_tokens: Rows of steps that drew nothing.
        decode_ns: Compute time of the last single-row steps, oldest first.
        resident_tensor_bytes: Bytes of the tensors this runtime holds.
        loaded_bytes: Bytes read while loading.
        capture: native or python; none on the final stage.
    """

    sessions: int
    session_limit: int
    steps: int
    prefill_tokens: int
    decode_ns: tuple[int, ...]
    resident_tensor_bytes: int
    loaded_bytes: int
    capture: str


class NextRow(Protocol):
    """A session's next row, made ready before its input is there."""

    @property
    def input(self) -> bytearray:
        """Where the activation goes before the run; of no use on the first stage."""
        ...

    def make_ready(self) -> None:
        """Stand behind what the session holds now."""
        ...

    def deliver(
        self, head: bytearray, token_at: tuple[int, int], descriptor: int = -1
    ) -> None:
        """Let each run write its token into `head`, and send the frame if it may.

        The frame is `head` and the activation; on the final stage it is `head` alone,
        which then says the token drawn. It is sent as soon as it is complete, as far as
        the socket takes it without waiting: `StepResult.sent_bytes` tells how far.

        Args:
            head: What is sent; kept.
            token_at: The two places where it says the token.
            descriptor: The socket; -1 sends nothing.
        """
        ...

    def deliver_nowhere(self) -> None:
        """Send nothing from now on; from any thread."""
        ...

    def run(self, token: int) -> StepResult | None:
        """Run it as `StageRuntime.step` would, with a prediction asked for.

        The activation of the result holds until the session's next row. None when the
        token or the session is not what was foreseen: nothing was done then.
        """
        ...


class StageRuntime(Protocol):
    """A layer range that runs steps of sessions; callable from any thread.

    Every method raises `skippyd.runtime.failures.EngineError` on failure.
    """

    @property
    def is_final(self) -> bool:
        """Whether it draws tokens."""
        ...

    @property
    def width(self) -> int:
        """Floats of one activation row."""
        ...

    def step(
        self,
        session_id: int,
        *,
        position: int,
        tokens: Sequence[int],
        activation: bytes | bytearray | memoryview | None,
        predict: bool,
    ) -> StepResult:
        """Run rows of one session; a position behind its end rewinds it first."""
        ...

    def ready_row(self, session_id: int) -> NextRow | None:
        """The session's next row made ready; None when there is no such session.

        For the thread that steps the session.
        """
        ...

    def configure(self, session_id: int, sampling: SamplingBlock | None) -> None:
        """Set how the final stage draws for a session."""
        ...

    def trim(self, session_id: int, keep: int) -> None:
        """Forget what a session holds from a position on."""
        ...

    def release(self, session_id: int) -> bool:
        """Forget a session whole; False when there was none."""
        ...

    def statistics(self) -> RuntimeStatistics:
        """Current counters."""
        ...

    def abort(self) -> None:
        """End the running batch; for a fence or a shutdown."""
        ...
