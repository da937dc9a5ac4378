"""Run one chain with some slice rules switched off, in a process of its own.

llama.cpp ends the process on an internal check, so what becomes of a badly cut model
is seen from outside: `outcome_without_rules` starts this module and reads its last line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from skippyd.model.gguf_model import open_model
from skippyd.model.slice_rules import ALL_RULES
from support.raw_chain import LoadError, Settings, random_prompt, run_chain, run_unsplit


if TYPE_CHECKING:
    from collections.abc import Sequence


TRIAL_SECONDS = 60


@attrs.frozen(kw_only=True)
class Outcome:
    """What became of a chain: exact, different by so much, not loaded, or aborted."""

    verdict: str
    difference: float = 0.0
    message: str = ""


def outcome_without_rules(
    path: Path, cuts: Sequence[int], rules_off: Sequence[str], vocab_size: int
) -> Outcome:
    """Run the model cut at `cuts` without the named rules and report."""
    wanted = json.dumps([str(path), list(cuts), list(rules_off), vocab_size])
    finished = subprocess.run(
        [sys.executable, "-m", "support.rule_trial", wanted],
        env={
            **os.environ,
            "GGML_NO_BACKTRACE": "1",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        timeout=TRIAL_SECONDS,
        check=False,
    )
    if finished.returncode != 0:
        return Outcome(verdict="aborted", message=finished.stderr)
    return Outcome(**json.loads(finished.stdout.splitlines()[-1]))


def trial(
    path: Path, cuts: Sequence[int], rules_off: Sequence[str], vocab_size: int
) -> Outcome:
    """Compare the chain with the unsplit model in this process."""
    rules = attrs.evolve(ALL_RULES, **dict.fromkeys(rules_off, False))
    prompt = random_prompt(vocab_size)
    settings = Settings(decoded=4)
    expected = run_unsplit(path, prompt, settings)
    model = open_model(path)
    try:
        found = run_chain(model, cuts, prompt, settings=settings, rules=rules)
    except LoadError as error:
        return Outcome(verdict="not loaded", message=str(error))
    difference = found.difference(expected)
    return Outcome(
        verdict="exact" if difference == 0.0 else "inexact", difference=difference
    )


if __name__ == "__main__":
    where, cuts, rules_off, vocab_size = json.loads(sys.argv[1])
    outcome = trial(Path(where), cuts, rules_off, vocab_size)
    print(json.dumps(attrs.asdict(outcome)))  # noqa: T201 - the parent reads it
