"""Figures of the chain, as ratios of things measured in turn in one run.

Machines are shared and noisy: a core may be half as fast a tenth of a second later, and
no other core with it. So all sides take turns of a few tokens, and every two turns are
compared with their neighbours. The median of all is quoted; the smallest and the
largest median of a round are its spread. Processes are not bound to cores: then they
could not make way for what else runs.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np

from skippyd.errors import SkippyError
from skippyd.model.facts import model_facts
from skippyd.model.gguf_model import open_model
from skippyd.model.slicing import slice_model
from skippyd.proving.bench_split import split_pair
from skippyd.proving.bench_turns import Round, WholeEngine, take_turns
from skippyd.proving.chain import ChainPlan, LocalChain, close_driver
from skippyd.proving.stage_process import resident_bytes
from skippyd.runtime.llama.bare import BareLoop
from skippyd.runtime.llama.quantize import write_quantized_copy


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skippyd.model.gguf_model import GgufModel

PROMPT_TOKENS = 50
WARMING_TOKENS = 12
FIRST_TOKEN = 100


@attrs.frozen(kw_only=True)
class BenchPlan:
    """What to measure.

    Args:
        model_path: The model.
        repetitions: Rounds in which everything runs once.
        threads_per_stage: Compute threads.
    """

    model_path: Path
    repetitions: int
    threads_per_stage: int = 1


@attrs.frozen(kw_only=True)
class Figure:
    """A median and its spread.

    Args:
        median: What is quoted.
        lowest: Smallest of the rounds.
        highest: Largest of the rounds.
    """

    median: float
    lowest: float
    highest: float

    @classmethod
    def of_pool(cls, rounds: Sequence[Sequence[float]], share: float) -> Figure:
        """A quantile of all values together, and of each round for its spread.

        Each is one of the values: between two of them the whole could lie outside its
        parts.
        """
        each = [_quantile(values, share) for values in rounds]
        pooled = [value for values in rounds for value in values]
        return cls(
            median=_quantile(pooled, share),
            lowest=min(each),
            highest=max(each),
        )

    def rounded(self, digits: int) -> tuple[float, list[float]]:
        """The quoted number, and its spread."""
        return (
            round(self.median, digits),
            [round(self.lowest, digits), round(self.highest, digits)],
        )


@attrs.frozen(kw_only=True)
class SpeedFigures:
    """Decode speeds against each other, and what a boundary costs."""

    engine_ratio: Figure
    decode_ratio: Figure
    boundary_us_p50: Figure
    boundary_us_p99: Figure
    cut: int


@attrs.frozen(kw_only=True)
class StageOverhead:
    """Memory of one stage beyond its tensors and its KV cache, in bytes."""

    model: str
    stage_index: int
    overhead_bytes: int


def measure_speed(plan: BenchPlan, on_round: Callable[[str], None]) -> SpeedFigures:
    """Bare loop, our engine, and two stages, in turn.

    Raises:
        SkippyError: They decoded different tokens, so that no ratio means anything.
    """
    model = open_model(plan.model_path)
    cut = model.layer_count // 2
    chain_plan = _chain_plan(plan, (0, cut, model.layer_count))
    rounds: list[Round] = []
    for number in range(plan.repetitions):
        rounds.append(_measure_round(plan, chain_plan, model))
        on_round(f"round {number + 1} of {plan.repetitions}: {rounds[-1]}")
    return SpeedFigures(
        engine_ratio=Figure.of_pool([each.engine for each in rounds], 0.5),
        decode_ratio=Figure.of_pool([each.decode for each in rounds], 0.5),
        boundary_us_p50=Figure.of_pool([each.gaps_us for each in rounds], 0.5),
        boundary_us_p99=Figure.of_pool([each.gaps_us for each in rounds], 0.99),
        cut=cut,
    )


def _measure_round(plan: BenchPlan, chain_plan: ChainPlan, model: GgufModel) -> Round:
    """Load everything and let the sides take turns.

    Loaded for each round anew: where a process lies in memory makes a few hundredths
    of its speed, and that is nothing to be measured here.
    """
    settings = chain_plan.settings()
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(BareLoop(plan.model_path, settings))
        whole = stack.enter_context(WholeEngine.load(model, settings))
        chain = stack.enter_context(LocalChain.start(chain_plan))
        pair = stack.enter_context(split_pair(chain, model))
        bare_turns, whole_turns, split_turns = take_turns([bare, whole, pair], prompt())
        gaps_us = pair.end()
    _check_same_tokens(plan, bare_turns.tokens, whole_turns.tokens, split_turns.tokens)
    return Round.of(bare_turns, whole_turns, split_turns, gaps_us)


def measure_overhead(plan: BenchPlan) -> list[StageOverhead]:
    """Memory beyond tensors and KV of each of two stages, for the model and a copy.

    The copy is the model in Q4_0, whose weights llama.cpp re-orders for the CPU.
    """
    with tempfile.TemporaryDirectory(prefix="skippyd-bench-") as folder:
        copy = Path(folder) / "q4_0.gguf"
        write_quantized_copy(plan.model_path, copy, "q4_0")
        return [
            *_overheads(plan, "model"),
            *_overheads(_with_model(plan, copy), "q4_0"),
        ]


def prompt() -> list[int]:
    """The token ids every side is fed."""
    return list(range(FIRST_TOKEN, FIRST_TOKEN + PROMPT_TOKENS))


def _quantile(values: Sequence[float], share: float) -> float:
    return float(np.quantile(values, share, method="inverted_cdf"))


def _check_same_tokens(
    plan: BenchPlan, bare: list[int], engine: list[int], split: list[int]
) -> None:
    if not bare == engine == split:
        raise SkippyError(
            f"{plan.model_path}: the bare loop, the engine and the two stages decoded "
            "different tokens, so their speeds cannot be compared; "
            f"`skippyd verify {plan.model_path}` shows where they part"
        )


def _decode_once(chain: LocalChain) -> None:
    """Let every stage touch what decoding touches."""
    driver = chain.driver()
    try:
        driver.prefill(prompt()[:-1])
        driver.configure(None)
        token = prompt()[-1]
        for _ in range(WARMING_TOKENS):
            token = driver.decode(token)
        driver.stop()
    finally:
        close_driver(driver)


def _overheads(plan: BenchPlan, name: str) -> list[StageOverhead]:
    model = open_model(plan.model_path)
    layers = model.layer_count
    bounds = (0, layers // 2, layers)
    chain_plan = _chain_plan(plan, bounds)
    per_token = model_facts(model).layer_kv_bytes_per_token()
    found = []
    with LocalChain.start(chain_plan) as chain:
        _decode_once(chain)
        for index, stage in enumerate(chain.stages):
            start, end = bounds[index], bounds[index + 1]
            tensors = slice_model(model, start, end).resident_tensor_bytes
            kv = sum(per_token[start:end]) * chain_plan.ctx_size
            held = resident_bytes(stage.process.pid)
            found.append(
                StageOverhead(
                    model=name,
                    stage_index=index,
                    overhead_bytes=held - tensors - kv,
                )
            )
    return found


def _chain_plan(plan: BenchPlan, bounds: tuple[int, ...]) -> ChainPlan:
    return ChainPlan(
        model_path=plan.model_path,
        model_id="bench",
        bounds=bounds,
        threads_per_stage=plan.threads_per_stage,
        ctx_size=512,
        lane_count=1,
    )


def _with_model(plan: BenchPlan, path: Path) -> BenchPlan:
    return attrs.evolve(plan, model_path=path)
