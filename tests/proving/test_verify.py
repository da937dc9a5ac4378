"""Verdicts: exact only bit for bit; inexact, refused and failed are three things."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from skippyd.errors import UsageError
from skippyd.proving import verify as verify_module
from skippyd.proving.stage_process import StageProcessError
from skippyd.proving.verify import (
    CutResult,
    VerifyPlan,
    max_difference,
    same_bits,
    verify,
)
from support import faulty_stage


if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from skippyd.model.gguf_model import GgufModel


def rows(
    *values: Sequence[float],
) -> list[np.ndarray[tuple[int], np.dtype[np.float32]]]:
    return [np.array(row, np.float32) for row in values]


def test_the_largest_difference_of_any_value_counts() -> None:
    assert max_difference(rows([1, 2], [3, 4]), rows([1, 2], [3, 4])) == 0.0
    assert max_difference(rows([1, 2], [3, 4]), rows([1, 2], [3.5, 3])) == 1.0
    assert max_difference([], []) == 0.0


def test_what_cannot_be_compared_has_no_difference() -> None:
    assert max_difference(rows([1, 2]), rows([1])) is None
    assert max_difference(rows([1, float("nan")]), rows([1, float("nan")])) is None


def test_bits_tell_zeros_and_lengths_apart() -> None:
    assert same_bits(rows([1, 2]), rows([1, 2]))
    assert not same_bits(rows([0.0]), rows([-0.0]))
    assert not same_bits(rows([1]), rows([1], [1]))


def test_a_result_is_told_as_the_contract_says() -> None:
    exact = CutResult(
        cuts=(5,), verdict="exact", max_abs_difference=0.0, tokens_equal=True
    )
    assert exact.document() == {
        "at": 5,
        "max_abs_difference": 0.0,
        "tokens_equal": True,
        "verdict": "exact",
    }
    refused = CutResult(cuts=(5, 9), verdict="refused", reason="not offered")
    assert refused.document() == {
        "at": [5, 9],
        "max_abs_difference": None,
        "tokens_equal": None,
        "verdict": "refused",
        "reason": "not offered",
    }


def plan_of(
    path: Path, *chains: tuple[int, ...], text: str | None = None, decoded: int = 4
) -> VerifyPlan:
    return VerifyPlan(
        model_path=path,
        chains=chains,
        threads=1,
        chunk=16,
        decoded=decoded,
        text=text,
        prompt_tokens=40 if text is None else len(text.encode()) + 8,
    )


def test_the_cache_holds_the_prompt_and_the_answer(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "m", text="x" * 3000, decoded=500)
    assert plan.chain_plan((0, 6)).ctx_size == 3584
    assert plan.chain_plan((0, 6)).lane_count == 1


native = pytest.mark.native
slow = pytest.mark.slow
process = pytest.mark.process


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_long_chains_and_bad_cuts_have_their_verdicts(mute: GgufModel) -> None:
    told: list[CutResult] = []
    chains = ((1, 2, 5), (6,), (2, 9), (3,))
    unsplit, results = verify(plan_of(mute.path, *chains), mute, on_result=told.append)
    assert told == results
    verdicts = [result.verdict for result in results]
    assert verdicts == ["exact", "refused", "refused", "exact"]
    for result in (results[0], results[3]):
        assert (result.max_abs_difference, result.tokens_equal) == (0.0, True)
    assert "cut 6 is out of range" in str(results[1].reason)
    assert "cut 9 is out of range" in str(results[2].reason)
    assert (len(unsplit.prompt), len(unsplit.tokens)) == (40, 4)


@native
@slow
@process
@pytest.mark.watchdog(60)
@pytest.mark.parametrize("load_ahead", [True, False])
def test_one_changed_activation_is_inexact(
    mute: GgufModel, monkeypatch: pytest.MonkeyPatch, load_ahead: bool
) -> None:
    """1e-3 on one of 64 floats of one token, whether or not chains overlap."""
    if not load_ahead:
        monkeypatch.setattr(verify_module, "LOAD_AHEAD_MAX_BYTES", 0)
    command = faulty_stage.command("tamper", "stage-0")
    _, results = verify(plan_of(mute.path, (2,), (5,)), mute, command=command)
    for result in results:
        assert result.verdict == "inexact"
        assert result.max_abs_difference is not None
        assert 0 < result.max_abs_difference < 1


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_an_assertion_of_llama_cpp_is_a_refusal_and_a_kill_is_none(
    mute: GgufModel,
) -> None:
    plan = plan_of(mute.path, (2,), (4,))
    command = faulty_stage.command("assert", "stage-1")
    _, results = verify(plan, mute, command=command)
    assert [result.verdict for result in results] == ["refused", "refused"]
    reason = str(results[0].reason)
    assert reason.startswith("stage-1 (pid ")
    assert "graph.cpp:7: GGML_ASSERT(rows == 1) failed" in reason.splitlines()[1]
    command = faulty_stage.command("kill", "stage-0")
    with pytest.raises(StageProcessError, match=r"stage-0 .* was ended by SIGKILL"):
        verify(plan, mute, command=command)


@native
@slow
@process
@pytest.mark.watchdog(60)
def test_a_long_prompt_with_a_tokenizer_is_exact(talking: GgufModel) -> None:
    """Every byte may be a token: positions and cache follow the longest case."""
    text = "Größe 12, the inner one. " * 40
    plan = plan_of(talking.path, (3,), text=text, decoded=6)
    unsplit, [result] = verify(plan, talking)
    assert result.verdict == "exact"
    assert 800 < len(unsplit.prompt) <= plan.prompt_tokens


def test_cuts_out_of_order_are_no_verdict(mute: GgufModel) -> None:
    with pytest.raises(UsageError, match="write cuts in order"):
        verify_module.Trial.begin(plan_of(mute.path), mute, (4, 2))
