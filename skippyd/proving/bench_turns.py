"""Sides that decode the same tokens in turns, and how their turns compare."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import TYPE_CHECKING, Protocol

import attrs

from skippyd.model.slicing import slice_model
from skippyd.runtime.stage_runtime import load_stage_runtime


if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from skippyd.model.gguf_model import GgufModel
    from skippyd.runtime.settings import EngineSettings
    from skippyd.runtime.stage_runtime import LlamaStageRuntime

TURNS = 12
"""Of each side in a round; an even number, see `Round`."""
TURN_TOKENS = 4
SESSION = 1


class Side(Protocol):
    """Something that decodes greedily."""

    def begin(self, prompt: Sequence[int]) -> None:
        """Begin anew with these tokens computed."""
        ...

    def decode(self, token: int) -> int:
        """Compute one token and draw the next one."""
        ...


@attrs.define
class SideTurns:
    """What one side decoded in a round.

    Args:
        tokens: The tokens, from the prompt's last one on.
        seconds: Of each turn, the median of its tokens.
    """

    tokens: list[int]
    seconds: list[float] = attrs.Factory(list)

    def take(self, side: Side) -> None:
        """Let the side decode a turn."""
        seconds = []
        for _ in range(TURN_TOKENS):
            begun = time.perf_counter()
            self.tokens.append(side.decode(self.tokens[-1]))
            seconds.append(time.perf_counter() - begun)
        self.seconds.append(statistics.median(seconds))


def take_turns(sides: Sequence[Side], prompt: Sequence[int]) -> list[SideTurns]:
    """Let sides decode after the same prompt, each a few tokens at a time.

    Every second time they go in the other order: none always follows the same one.
    """
    taken = [SideTurns(tokens=[prompt[-1]]) for _ in sides]
    for side in sides:
        side.begin(prompt[:-1])
    pairs = list(zip(sides, taken, strict=True))
    for _ in range(TURNS):
        for side, turns in pairs:
            turns.take(side)
        pairs.reverse()
    return taken


@attrs.frozen(kw_only=True)
class Round:
    """One round's turns against each other.

    Args:
        whole_ms: Milliseconds a token of the unsplit engine, the median of its turns.
        engine: Of every two turns, the unsplit engine's speed over the bare loop's.
        decode: Of every two turns, the two stages' speed over the unsplit engine's.
        gaps_us: Of each token of the two stages, when none of them computed.
    """

    whole_ms: float
    engine: list[float]
    decode: list[float]
    gaps_us: list[float]

    @classmethod
    def of(
        cls, bare: SideTurns, whole: SideTurns, split: SideTurns, gaps_us: list[float]
    ) -> Round:
        """Compare the turns of three sides."""
        return cls(
            whole_ms=1000 * statistics.median(whole.seconds),
            engine=_ratios(bare, whole),
            decode=_ratios(whole, split),
            gaps_us=gaps_us,
        )

    def __str__(self) -> str:
        return (
            f"{self.whole_ms:.2f} ms a token unsplit, "
            f"engine {statistics.median(self.engine):.3f}, "
            f"2 stages {statistics.median(self.decode):.3f}, "
            f"boundary {statistics.median(self.gaps_us):.0f} us"
        )


def _ratios(measure: SideTurns, measured: SideTurns) -> list[float]:
    """Speeds of the second over the first; in two turns each came once before it."""
    pairs = zip(_by_twos(measure.seconds), _by_twos(measured.seconds), strict=True)
    return [one / other for one, other in pairs]


def _by_twos(seconds: Sequence[float]) -> list[float]:
    return [one + other for one, other in zip(seconds[::2], seconds[1::2], strict=True)]


@attrs.frozen
class WholeEngine:
    """The unsplit model on our engine.

    Args:
        runtime: All its layers.
    """

    runtime: LlamaStageRuntime
    _held: list[int] = attrs.Factory(list)

    @classmethod
    @contextlib.contextmanager
    def load(cls, model: GgufModel, settings: EngineSettings) -> Iterator[WholeEngine]:
        """Load all layers as one slice."""
        runtime = load_stage_runtime(slice_model(model, 0, model.layer_count), settings)
        with contextlib.closing(runtime):
            yield cls(runtime)

    def begin(self, prompt: Sequence[int]) -> None:
        """Begin a session and compute these tokens."""
        self.runtime.release(SESSION)
        self._held[:] = prompt
        self.runtime.step(
            SESSION, position=0, tokens=prompt, activation=None, predict=False
        )

    def decode(self, token: int) -> int:
        """Compute one token and draw the next one greedily."""
        result = self.runtime.step(
            SESSION,
            position=len(self._held),
            tokens=[token],
            activation=None,
            predict=True,
        )
        self._held.append(token)
        assert result.token is not None
        return result.token
