"""Figures of the chain, as ratios of things measured in turn in one run.

Machines are shared and noisy, so all sides run alternately, in many short turns: what
slows the machine for a second slows them alike. The median of the ratios is quoted, with
the smallest and the largest as its spread.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import numpy as np

from skippyd.errors import SkippyError
from skippyd.model.facts import model_facts
from skippyd.model.gguf_model import open_model
from skippyd.model.slicing import slice_model
from skippyd.proving.bench_split import split_pair
from skippyd.proving.chain import ChainPlan, LocalChain, close_driver
from skippyd.proving.stage_process import resident_bytes
from skippyd.runtime.llama.bare import BareLoop
from skippyd.runtime.llama.quantize import write_quantized_copy
from skippyd.runtime.stage_runtime import load_stage_runtime


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from skippyd.runtime.stage_runtime import LlamaStageRuntime

PROMPT_TOKENS = 50
DECODED_TOKENS = 12
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
    def of(cls, values: Sequence[float]) -> Figure:
        """Median, smallest and largest."""
        return cls(
            median=statistics.median(values), lowest=min(values), highest=max(values)
        )

    @classmethod
    def of_pool(cls, rounds: Sequence[Sequence[float]], share: float) -> Figure:
        """A quantile of all values together, and of the rounds for its spread.

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
    engine, decode = [], []
    gaps_us: list[list[float]] = []
    with contextlib.ExitStack() as stack:
        bare = stack.enter_context(BareLoop(plan.model_path, chain_plan.settings()))
        whole = load_stage_runtime(
            slice_model(model, 0, model.layer_count), chain_plan.settings()
        )
        stack.callback(whole.close)
        chain = stack.enter_context(LocalChain.start(chain_plan))
        pair = stack.enter_context(split_pair(chain, model))
        for number in range(plan.repetitions):
            plain, bare_times = bare.decode(prompt(), DECODED_TOKENS)
            ours, engine_times = _decode_whole(whole)
            split = pair.decode(prompt(), DECODED_TOKENS)
            _check_same_tokens(plan, plain, ours, split.tokens)
            engine_s = statistics.median(engine_times)
            engine.append(statistics.median(bare_times) / engine_s)
            decode.append(engine_s / statistics.median(split.seconds))
            gaps_us.append(split.gaps_us)
            on_round(
                f"round {number + 1} of {plan.repetitions}: {engine_s * 1000:.2f} ms a "
                f"token unsplit, engine {engine[-1]:.3f}, 2 stages {decode[-1]:.3f}, "
                f"boundary {statistics.median(split.gaps_us):.0f} us"
            )
    return SpeedFigures(
        engine_ratio=Figure.of(engine),
        decode_ratio=Figure.of(decode),
        boundary_us_p50=Figure.of_pool(gaps_us, 0.5),
        boundary_us_p99=Figure.of_pool(gaps_us, 0.99),
        cut=cut,
    )


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


def _decode_whole(runtime: LlamaStageRuntime) -> tuple[list[int], list[float]]:
    """Tokens and seconds of the unsplit engine."""
    session = 1
    fed, seconds = prompt(), []
    runtime.step(session, position=0, tokens=fed[:-1], activation=None, predict=False)
    for _ in range(DECODED_TOKENS):
        begun = time.perf_counter()
        result = runtime.step(
            session,
            position=len(fed) - 1,
            tokens=fed[-1:],
            activation=None,
            predict=True,
        )
        seconds.append(time.perf_counter() - begun)
        assert result.token is not None
        fed.append(result.token)
    runtime.release(session)
    return fed[PROMPT_TOKENS:], seconds


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
        for _ in range(DECODED_TOKENS):
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
