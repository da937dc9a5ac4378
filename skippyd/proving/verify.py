"""Split against unsplit logits, bit for bit, with the stage executable's own processes."""

from __future__ import annotations

import collections
import contextlib
import itertools
from typing import TYPE_CHECKING, Literal, Self

import attrs
import numpy as np

from skippyd.errors import RefusedError, StageFailureError
from skippyd.model.refusals import check_cut, check_range
from skippyd.proving.chain import (
    ChainPlan,
    LocalChain,
    bounds_of_cuts,
    close_driver,
)
from skippyd.proving.logits_pipe import LogitsReader
from skippyd.proving.reference import ReferenceRequest, ask_reference
from skippyd.proving.stage_process import STAGE_COMMAND, StageProcessError
from skippyd.units import MIB


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel
    from skippyd.proving.reference import ReferenceAnswer

    Row = np.ndarray[tuple[int], np.dtype[np.float32]]

Verdict = Literal["exact", "inexact", "refused"]
ROWS_SECONDS = 30.0
CTX_STEP = 256
LOAD_AHEAD_MAX_BYTES = 512 * MIB
"""Two chains of a larger model may be more than the machine holds."""


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


@attrs.define(eq=False)
class Trial:
    """One chain to be compared: refused already, or launched and loading.

    Args:
        cuts: Where it is cut.
        refusal: Why it is not run at all.
        chain: Its stages.
        logits: What its final stage predicts.
    """

    cuts: tuple[int, ...]
    refusal: str | None = None
    chain: LocalChain | None = None
    logits: LogitsReader | None = None

    @classmethod
    def begin(
        cls,
        plan: VerifyPlan,
        model: GgufModel,
        cuts: tuple[int, ...],
        command: Sequence[str] = STAGE_COMMAND,
    ) -> Self:
        """Start the stages of a chain; they load on their own."""
        try:
            for cut in cuts:
                check_cut(model, cut)
            bounds = bounds_of_cuts(cuts, model.layer_count)
            for start, end in itertools.pairwise(bounds):
                check_range(model, start, end)
        except RefusedError as error:
            return cls(cuts, str(error))
        with contextlib.ExitStack() as undo:
            logits = undo.enter_context(LogitsReader())
            chain = LocalChain.launch(
                plan.chain_plan(bounds), command=command, logits_fd=logits.write_end
            )
            logits.close_write_end()
            undo.pop_all()
        return cls(cuts, None, chain, logits)

    def close(self) -> None:
        """End the stages; harmless when repeated."""
        if self.chain is not None:
            self.chain.stop()
        if self.logits is not None:
            self.logits.close()

    def compare(self, unsplit: ReferenceAnswer) -> CutResult:
        """Feed the chain what the unsplit model was fed, and compare the logits.

        A refusal, by the rules or by llama.cpp itself, is a result and not an error.

        Raises:
            SkippyError: The chain ended or failed for another reason.
        """
        if self.chain is None or self.logits is None:
            return CutResult(cuts=self.cuts, verdict="refused", reason=self.refusal)
        try:
            self.chain.wait_ready()
            tokens = self._tokens(self.chain, unsplit)
        except (StageProcessError, StageFailureError) as error:
            # A stage that ended is the reason why another one complains.
            death = self.chain.death()
            if death is None or not death.is_refusal:
                raise death or error from None
            return CutResult(cuts=self.cuts, verdict="refused", reason=str(death))
        rows = self.logits.take(unsplit.positions, ROWS_SECONDS)
        difference = max_difference(rows, unsplit.rows)
        tokens_equal = tokens == list(unsplit.tokens)
        is_exact = difference == 0.0 and tokens_equal and same_bits(rows, unsplit.rows)
        return CutResult(
            cuts=self.cuts,
            verdict="exact" if is_exact else "inexact",
            max_abs_difference=difference,
            tokens_equal=tokens_equal,
        )

    def _tokens(self, chain: LocalChain, unsplit: ReferenceAnswer) -> list[int]:
        """What the chain draws, fed the unsplit model's tokens.

        Its own are not fed: one wrong token would make every later row incomparable.
        """
        driver = chain.driver()
        try:
            driver.prefill(unsplit.prompt[:-1])
            driver.configure(None)
            fed = (unsplit.prompt[-1], *unsplit.tokens[:-1])
            tokens = [driver.decode(token) for token in fed]
            driver.stop()
        finally:
            close_driver(driver)
        return tokens


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
    """Compare every chain of the plan with one run of the unsplit model.

    The stages of a small model's next chain load while the present one computes.

    Raises:
        SkippyError: A stage or the reference failed in a way that is no refusal.
    """
    results: list[CutResult] = []
    size = sum(part.file_bytes for part in model.part_files)
    ahead = size <= LOAD_AHEAD_MAX_BYTES
    trials: collections.deque[Trial] = collections.deque()
    with contextlib.ExitStack() as running:

        def begin(cuts: tuple[int, ...]) -> None:
            trials.append(Trial.begin(plan, model, cuts, command))
            running.callback(trials[-1].close)

        unsplit = ask_unsplit(plan, model.layer_count)
        for index, cuts in enumerate(plan.chains):
            if not trials:
                begin(cuts)
            if ahead:
                for following in plan.chains[index + 1 : index + 2]:
                    begin(following)
            trial = trials.popleft()
            results.append(trial.compare(unsplit))
            trial.close()
            on_result(results[-1])
    return unsplit, results
