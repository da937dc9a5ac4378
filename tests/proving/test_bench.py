"""Figures: medians with their spread, of sides that decoded the same tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.errors import SkippyError
from skippyd.proving.bench import (
    PROMPT_TOKENS,
    BenchPlan,
    Figure,
    measure_overhead,
    measure_speed,
    prompt,
)
from skippyd.runtime.llama.bare import BareLoop
from skippyd.units import MIB


if TYPE_CHECKING:
    from skippyd.model.gguf_model import GgufModel


def test_a_figure_is_a_quantile_of_all_between_those_of_the_rounds() -> None:
    figure = Figure.of_pool([[5.0, 1.0], [2.0]], 0.5)
    assert figure == Figure(median=2.0, lowest=1.0, highest=2.0)
    assert Figure.of_pool([[4.0]], 0.5) == Figure(median=4.0, lowest=4.0, highest=4.0)


@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_quantile_of_all_lies_between_those_of_the_rounds(share: float) -> None:
    rounds = [[1.0, 10.0, 12.0], [2.0, 11.0], [3.0, 3.0, 3.0, 9.0]]
    figure = Figure.of_pool(rounds, share)
    assert figure.lowest <= figure.median <= figure.highest


def test_a_figure_is_rounded_with_its_spread() -> None:
    figure = Figure(median=0.98765, lowest=0.91239, highest=1.23451)
    assert figure.rounded(3) == (0.988, [0.912, 1.235])
    assert figure.rounded(1) == (1.0, [0.9, 1.2])


def test_every_side_is_fed_the_same_prompt() -> None:
    assert prompt() == prompt()
    assert len(prompt()) == len(set(prompt())) == PROMPT_TOKENS


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.watchdog(60)
def test_speeds_are_ratios_of_each_round(mute: GgufModel) -> None:
    rounds: list[str] = []
    plan = BenchPlan(model_path=mute.path, repetitions=3)
    speed = measure_speed(plan, rounds.append)
    figures = attrs.asdict(speed, recurse=False)
    assert figures.pop("cut") == 3
    assert len(figures) == 4
    for figure in figures.values():
        assert 0 < figure.lowest <= figure.median <= figure.highest
    assert speed.boundary_us_p50.median <= speed.boundary_us_p99.median
    assert [line.partition(":")[0] for line in rounds] == [
        f"round {number} of 3" for number in (1, 2, 3)
    ]
    for line in rounds:
        assert "ms a token unsplit, engine " in line
        assert ", boundary " in line


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.watchdog(60)
def test_sides_that_decode_different_tokens_have_no_figures(
    mute: GgufModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(_self: BareLoop, _token: int) -> int:
        return 0

    monkeypatch.setattr(BareLoop, "decode", decode)
    rounds: list[str] = []
    with pytest.raises(SkippyError, match="decoded different tokens"):
        measure_speed(BenchPlan(model_path=mute.path, repetitions=2), rounds.append)
    assert rounds == []


@pytest.mark.native
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.watchdog(90)
def test_memory_is_told_of_both_stages_of_the_model_and_of_its_copy(
    mute: GgufModel,
) -> None:
    """A stage is a Python with llama.cpp: more than 10 MiB, far less than 500."""
    found = measure_overhead(BenchPlan(model_path=mute.path, repetitions=1))
    assert [(one.model, one.stage_index) for one in found] == [
        ("model", 0),
        ("model", 1),
        ("q4_0", 0),
        ("q4_0", 1),
    ]
    for one in found:
        assert 10 * MIB < one.overhead_bytes < 500 * MIB
