"""One stage alone: what enters it is a token, or a row made from the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.runtime.interface import StepResult
    from skippyd.runtime.ready_row import ReadyRow
    from skippyd.runtime.stage_runtime import LlamaStageRuntime


@attrs.define
class OneSlice:
    """A loaded range, stepped by tokens whatever enters it."""

    runtime: LlamaStageRuntime

    def entering(self, tokens: Sequence[int]) -> bytes | None:
        """The activation that stands for these tokens; None on the first stage."""
        if self.runtime.model_slice.is_first:
            return None
        rows = [np.sin(np.arange(self.runtime.width) * (t % 97 + 1)) for t in tokens]
        return np.array(rows, np.float32).tobytes()

    def step(
        self, position: int, tokens: Sequence[int], session: int = 1
    ) -> StepResult:
        """Run them the long way, with a prediction asked for."""
        return self.runtime.step(
            session,
            position=position,
            tokens=tokens,
            activation=self.entering(tokens),
            predict=True,
        )

    def ready(self, token: int) -> ReadyRow:
        """The next row with the token's input in it."""
        ready = self.runtime.ready_row(1)
        assert ready is not None
        ready.input[:] = self.entering([token]) or ready.input
        return ready
