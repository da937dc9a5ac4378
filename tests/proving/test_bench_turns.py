"""Turns of a few tokens: every side decodes the same, and neighbours are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.proving.bench_turns import (
    TURN_TOKENS,
    TURNS,
    Round,
    SideTurns,
    WholeEngine,
    take_turns,
)
from skippyd.runtime.settings import EngineSettings
from skippyd.runtime.unsplit import UnsplitModel


if TYPE_CHECKING:
    from collections.abc import Sequence

    from skippyd.model.gguf_model import GgufModel

PROMPT = [3, 1, 4, 1, 5]


@attrs.define(eq=False)
class Counting:
    """Draws the next number, and notes on a common list that it did."""

    name: str
    order: list[str]
    begun: list[int] = attrs.Factory(list)

    def begin(self, prompt: Sequence[int]) -> None:
        """See `Side.begin`."""
        self.begun[:] = prompt

    def decode(self, token: int) -> int:
        """See `Side.decode`."""
        self.order.append(self.name)
        return token + 1


def test_sides_take_turns_after_the_same_prompt() -> None:
    order: list[str] = []
    sides = [Counting("a", order), Counting("b", order), Counting("c", order)]
    taken = take_turns(sides, PROMPT)
    assert [side.begun for side in sides] == [PROMPT[:-1]] * 3
    expected = [*range(5, 5 + 1 + TURNS * TURN_TOKENS)]
    assert [turns.tokens for turns in taken] == [expected] * 3
    assert [len(turns.seconds) for turns in taken] == [TURNS] * 3
    assert min(second for turns in taken for second in turns.seconds) > 0
    assert "".join(order[::TURN_TOKENS][:6]) == "abccba"


def test_a_round_compares_each_turn_with_its_neighbours() -> None:
    bare, whole, split = (
        SideTurns(tokens=[], seconds=seconds)
        for seconds in ([0.011, 0.012], [0.010, 0.016], [0.020, 0.016])
    )
    found = Round.of(bare, whole, split, [300.0, 500.0, 400.0])
    assert found.engine == pytest.approx([23 / 26])
    assert found.decode == pytest.approx([26 / 36])
    assert str(found) == (
        "13.00 ms a token unsplit, engine 0.885, 2 stages 0.722, boundary 400 us"
    )


@pytest.mark.native
def test_the_engine_whole_decodes_what_the_model_decodes(mute: GgufModel) -> None:
    settings = EngineSettings(ctx_size=256, lane_count=1)
    with UnsplitModel(mute.path, settings) as model:
        rows = list(model.generate(PROMPT, chunk=64, limit=9, sampling=None))
    with WholeEngine.load(mute, settings) as engine:
        for _ in range(2):
            tokens = [PROMPT[-1]]
            engine.begin(PROMPT[:-1])
            for _ in range(9):
                tokens.append(engine.decode(tokens[-1]))
            assert tokens[1:] == [row.token for row in rows]
