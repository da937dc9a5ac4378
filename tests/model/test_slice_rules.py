"""Every slice rule is needed: without it some chain is inexact or does not load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import pytest

from skippyd.model.gguf_model import open_model
from skippyd.model.slice_rules import ALL_RULES, SliceRules
from skippyd.model.slicing import slice_model
from support.random_models import (
    GEMMA3,
    GEMMA3_PATTERN,
    LLAMA_ROPE_FACTORS,
    LLAMA_TIED,
    LLAMA_UNTIED,
    RandomModel,
    write_random_model,
)
from support.rule_trial import outcome_without_rules


if TYPE_CHECKING:
    from pathlib import Path


OTHER_SCALE = RandomModel(
    architecture="gemma3",
    layers=62,
    width=32,
    heads=2,
    kv_heads=1,
    key_length=32,
    feed_forward=32,
)
SPLIT = attrs.evolve(LLAMA_TIED, tensors_per_part=20)


@attrs.frozen(kw_only=True)
class Trial:
    """A rule switched off for one chain, and what must become of it."""

    rule: str
    spec: RandomModel
    cuts: list[int]
    verdict: str
    message: str = ""

    def __str__(self) -> str:
        return "-".join([self.rule, *map(str, self.cuts)])


def trial(
    rule: str, spec: RandomModel, cuts: list[int], verdict: str, *, message: str = ""
) -> Trial:
    return Trial(rule=rule, spec=spec, cuts=cuts, verdict=verdict, message=message)


TRIALS = [
    trial("set_block_count", LLAMA_TIED, [2], "not loaded"),
    trial("renumber_blocks", LLAMA_TIED, [2], "not loaded"),
    trial("cut_per_layer_arrays", LLAMA_ROPE_FACTORS, [2], "not loaded"),
    trial("write_window_pattern", GEMMA3, [4], "inexact"),
    trial("write_window_pattern", GEMMA3, [8], "inexact"),
    trial("drop_idle_window", GEMMA3, [5, 6], "inexact"),
    trial("drop_idle_window", GEMMA3_PATTERN, [2, 3], "aborted", message="is_swa_any"),
    trial("hollow_vocabulary", LLAMA_TIED, [2, 4], "not loaded"),
    trial("hollow_embedding", LLAMA_TIED, [2, 4], "not loaded"),
    trial("drop_output", LLAMA_UNTIED, [2, 4], "not loaded"),
    trial("keep_tied_embedding", LLAMA_TIED, [2], "not loaded"),
    trial("declare_untied_embedding", LLAMA_UNTIED, [2], "not loaded"),
    trial("keep_rope_factors", LLAMA_ROPE_FACTORS, [2], "inexact"),
    trial("drop_split_keys", SPLIT, [2], "not loaded", message="split"),
    trial("refuse_other_scale", OTHER_SCALE, [31], "inexact"),
]


def test_every_rule_has_a_trial() -> None:
    tried = {trial.rule for trial in TRIALS}
    assert tried == {field.name for field in attrs.fields(SliceRules)}


def test_the_product_follows_every_rule() -> None:
    assert all(attrs.asdict(ALL_RULES).values())


@pytest.mark.native
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("tried", TRIALS, ids=str)
def test_without_the_rule_the_chain_is_wrong(tmp_path: Path, tried: Trial) -> None:
    path = write_random_model(tmp_path / "m.gguf", tried.spec)
    outcome = outcome_without_rules(
        path, tried.cuts, [tried.rule], tried.spec.token_count
    )
    assert outcome.verdict == tried.verdict, outcome
    assert tried.message in outcome.message
    if tried.verdict == "inexact":
        assert outcome.difference > 0.01


CONTROLS = {
    "tied": (LLAMA_TIED, [2, 4]),
    "untied": (LLAMA_UNTIED, [2, 4]),
    "rope factors": (LLAMA_ROPE_FACTORS, [2]),
    "gemma3": (GEMMA3, [5, 6]),
    "gemma3 pattern": (GEMMA3_PATTERN, [2, 3]),
    "split": (SPLIT, [2]),
    "62 layers of one scale": (attrs.evolve(OTHER_SCALE, key_length=16), [31]),
}


@pytest.mark.native
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("name", CONTROLS)
def test_with_all_rules_the_same_chain_is_exact(tmp_path: Path, name: str) -> None:
    spec, cuts = CONTROLS[name]
    path = write_random_model(tmp_path / "m.gguf", spec)
    outcome = outcome_without_rules(path, cuts, [], spec.token_count)
    assert outcome.verdict == "exact", outcome


def test_the_first_stage_of_an_untied_model_saves_the_output(tmp_path: Path) -> None:
    model = open_model(write_random_model(tmp_path / "m.gguf", LLAMA_UNTIED))
    wasteful = slice_model(model, 0, 2, rules=SliceRules(drop_output=False))
    saved = (
        wasteful.resident_tensor_bytes - slice_model(model, 0, 2).resident_tensor_bytes
    )
    assert saved == 2 * 128 * 320
