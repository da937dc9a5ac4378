"""Split against unsplit logits, bit for bit, with the stage executable's own processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs
import numpy as np

from skippyd.errors import RefusedError, StageFailureError
from skippyd.model.refusals import check_cut
from skippyd.proving.chain import ChainPlan, LocalChain, close_driver
from skippyd.proving.logits_pipe import LogitsReader
from skippyd.proving.reference import ReferenceRequest, ask_reference
from skippyd.proving.stage_process import STAGE_COMMAND, StageProcessError


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel
    from skippyd.proving.reference import ReferenceAnswer

    Row = np.ndarray[tuple[int], np.dtype[np.float32]]

Verdict = Literal["exact", "inexact", "refused"]
ROWS_SECONDS = 30.0
CTX_STEP = 256


@attrs.frozen(kw_only=True)
class VerifyPlan:
    """What to compare.

    Args:
        model_path: The model.
        chains: Cuts of each chain to try.
        threads: Compute threads of each stage and of the reference.
        chunk: Prefill chunk in tokens.
        decoded: Rows to predict.
        text: The prompt, or None to feed token ids from a fixed seed.
        prompt_tokens: How many of those.
    """

    model_path: Path
    chains: tuple[tuple[int, ...], ...]
    threads: int
    chunk: int
    decoded: int
    text: str | None
    prompt_tokens: int

    def chain_plan(self, bounds: tuple[int, ...]) -> ChainPlan:
        """The chain of one comparison."""
        needed = self.prompt_tokens + self.decoded + 1
        return ChainPlan(
            model_path=self.model_path,
            model_id="verify",
            bounds=bounds,
            threads_per_stage=self.threads,
            ctx_size=-(-needed // CTX_STEP) * CTX_STEP,
            chunk=self.chunk,
            lane_count=1,
        )


@attrs.frozen(kw_only=True)
class CutResult:
    """How one chain compared.

    Args:
        cuts: Where it was cut.
        verdict: exact only when every logit is the same.
        max_abs_difference: Largest difference of any logit; None when refused.
        tokens_equal: Whether the drawn tokens are the same.
        reason: Why it was refused.
    """

    cuts: tuple[int, ...]
    verdict: Verdict
    max_abs_difference: float | None = None
    tokens_equal: bool | None = None
    reason: str | None = None

    def document(self) -> dict[str, object]:
        """The entry of `skippy.verify/1`."""
        at: object = self.cuts[0] if len(self.cuts) == 1 else list(self.cuts)
        entry: dict[str, object] = {
            "at": at,
            "max_abs_difference": self.max_abs_difference,
            "tokens_equal": self.tokens_equal,
            "verdict": self.verdict,
        }
        return entry if self.reason is None else entry | {"reason": self.reason}


def ask_unsplit(plan: VerifyPlan, layer_count: int) -> ReferenceAnswer:
    """What the unsplit model says to the plan's prompt."""
    settings = plan.chain_plan((0, layer_count)).settings()
    return ask_reference(
        ReferenceRequest(
            model_path=str(plan.model_path.absolute()),
            settings=settings,
            chunk=plan.chunk,
            limit=plan.decoded,
            text=plan.text,
            random_tokens=plan.prompt_tokens if plan.text is None else None,
        )
    )


def compare_chain(
    plan: VerifyPlan,
    model: GgufModel,
    cuts: tuple[int, ...],
    unsplit: ReferenceAnswer,
    *,
    command: Sequence[str] = STAGE_COMMAND,
) -> CutResult:
    """Run one chain and compare its logits with the unsplit model's.

    A refusal, by the rules or by llama.cpp itself, is a result and not an error.
    """
    try:
        for cut in cuts:
            check_cut(model, cut)
        tokens, rows = run_chain(plan, model, cuts, unsplit, command=command)
    except RefusedError as error:
        return CutResult(cuts=cuts, verdict="refused", reason=str(error))
    except (StageProcessError, StageFailureError) as error:
        return CutResult(cuts=cuts, verdict="refused", reason=str(error))
    difference = max_difference(rows, unsplit.rows)
    tokens_equal = tokens == list(unsplit.tokens)
    is_exact = difference == 0.0 and tokens_equal and same_bits(rows, unsplit.rows)
    return CutResult(
        cuts=cuts,
        verdict="exact" if is_exact else "inexact",
        max_abs_difference=difference,
        tokens_equal=tokens_equal,
    )


def run_chain(
    plan: VerifyPlan,
    model: GgufModel,
    cuts: tuple[int, ...],
    unsplit: ReferenceAnswer,
    *,
    command: Sequence[str] = STAGE_COMMAND,
) -> tuple[list[int], list[Row]]:
    """Tokens and logits of the chain, fed what the unsplit model was fed.

    Each step is fed the unsplit model's token, so that one wrong token does not make
    every later row incomparable.
    """
    chain_plan = plan.chain_plan((0, *cuts, model.layer_count))
    with (
        LogitsReader() as logits,
        LocalChain.start(
            chain_plan, command=command, logits_fd=logits.write_end
        ) as chain,
    ):
        logits.close_write_end()
        driver = chain.driver()
        try:
            driver.prefill(unsplit.prompt[:-1])
            driver.configure(None)
            fed = (unsplit.prompt[-1], *unsplit.tokens[:-1])
            tokens = [driver.decode(token) for token in fed]
            driver.stop()
        finally:
            close_driver(driver)
        return tokens, logits.take(unsplit.positions, ROWS_SECONDS)


def max_difference(rows: Sequence[Row], others: Sequence[Row]) -> float | None:
    """Largest absolute difference of any two logits; None when not comparable."""
    largest = 0.0
    for row, other in zip(rows, others, strict=True):
        if len(row) != len(other):
            return None
        difference = np.abs(row.astype(np.float64) - other.astype(np.float64))
        worst = float(difference.max())
        if np.isnan(worst):
            return None
        largest = max(largest, worst)
    return largest


def same_bits(rows: Sequence[Row], others: Sequence[Row]) -> bool:
    """Whether all logits are the same numbers, bit for bit."""
    return len(rows) == len(others) and all(
        row.tobytes() == other.tobytes()
        for row, other in zip(rows, others, strict=True)
    )


def verify(
    plan: VerifyPlan,
    model: GgufModel,
    *,
    on_result: Callable[[CutResult], None] = lambda _result: None,
    command: Sequence[str] = STAGE_COMMAND,
) -> tuple[ReferenceAnswer, list[CutResult]]:
    """Compare every chain of the plan with one run of the unsplit model."""
    unsplit = ask_unsplit(plan, model.layer_count)
    results: list[CutResult] = []
    for cuts in plan.chains:
        results.append(compare_chain(plan, model, cuts, unsplit, command=command))
        on_result(results[-1])
    return unsplit, results
