"""`skippyd verify`: is this model exact at these cuts, on this machine?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from skippyd.errors import ExitCode, UsageError


if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from skippyd.model.gguf_model import GgufModel
    from skippyd.proving.reference import ReferenceAnswer
    from skippyd.proving.verify import CutResult, VerifyPlan

HELP = "compare a split model with the unsplit one, logit by logit"
PROMPT = (
    "Layers one after the other turn a row of numbers into the next word. "
    "Cut anywhere, the numbers have to be the same: "
)
RANDOM_PROMPT_TOKENS = 40
MARKS = 8
"""Room for what a tokenizer puts around a text of at most a token a byte."""
MOST = {"tokens": 100_000, "chunk": 8192, "threads": 512}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags (contract, "Command output")."""
    parser.add_argument("model", type=Path, metavar="MODEL.gguf")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--cuts",
        default="all",
        metavar="all|LIST",
        help="chains of two stages, one for each cut: all (default), or such as 5,9",
    )
    what.add_argument(
        "--chain", metavar="LIST", help="one chain cut at all of these, such as 5,9"
    )
    parser.add_argument("--tokens", type=int, default=16, help="rows to predict (16)")
    parser.add_argument("--chunk", type=int, default=64, help="prefill chunk (64)")
    parser.add_argument("--threads", type=int, default=1, help="of each stage (1)")
    parser.add_argument("--prompt", help="the prompt (a short built-in text)")
    parser.add_argument("--json", action="store_true", help="one JSON line at the end")


def run(arguments: argparse.Namespace) -> int:
    """Compare, print, and say by the exit code: 0 exact, 1 differs, 6 refused."""
    from skippyd.cli.logs import log_to_stderr  # noqa: PLC0415 - `--help` is quick
    from skippyd.model.gguf_model import open_model  # noqa: PLC0415 - as above
    from skippyd.proving.verify import verify  # noqa: PLC0415 - as above

    log_to_stderr("error")
    _check_counts(arguments)
    model = open_model(arguments.model)
    plan = _plan(arguments, model)
    _say(
        f"{arguments.model}: {model.architecture}, {model.layer_count} layers; "
        f"chains to compare with the unsplit model: {len(plan.chains)}"
    )
    unsplit, results = verify(plan, model, on_result=_report)
    verdicts = {result.verdict for result in results}
    _say(_summary(results))
    if arguments.json:
        document = _document(plan, model, unsplit, results)
        sys.stdout.write(json.dumps(document) + "\n")
    if "inexact" in verdicts:
        return ExitCode.FAILED
    return ExitCode.REFUSED if "refused" in verdicts else ExitCode.DONE


def _check_counts(arguments: argparse.Namespace) -> None:
    for name, most in MOST.items():
        value = getattr(arguments, name)
        if not 1 <= value <= most:
            raise UsageError(f"--{name} is {value}; 1 to {most} is offered")


def _plan(arguments: argparse.Namespace, model: GgufModel) -> VerifyPlan:
    from skippyd.model.facts import model_facts  # noqa: PLC0415 - `--help` is quick
    from skippyd.model.refusals import check_range  # noqa: PLC0415 - as above
    from skippyd.proving.verify import VerifyPlan  # noqa: PLC0415 - as above

    check_range(model, 0, model.layer_count)
    chains = _chains(arguments, model.layer_count)
    has_tokenizer = model_facts(model).has_tokenizer
    text = (arguments.prompt or PROMPT) if has_tokenizer else None
    return VerifyPlan(
        model_path=arguments.model,
        chains=chains,
        threads=arguments.threads,
        chunk=arguments.chunk,
        decoded=arguments.tokens,
        text=text,
        prompt_tokens=RANDOM_PROMPT_TOKENS
        if text is None
        else len(text.encode()) + MARKS,
    )


def _chains(
    arguments: argparse.Namespace, layer_count: int
) -> tuple[tuple[int, ...], ...]:
    if arguments.chain is not None:
        cuts = _numbers("--chain", arguments.chain)
        if list(cuts) != sorted(set(cuts)):
            raise UsageError(f"--chain {arguments.chain}: write the cuts in order")
        return (cuts,)
    if arguments.cuts == "all":
        return tuple((cut,) for cut in range(1, layer_count))
    return tuple((cut,) for cut in _numbers("--cuts", arguments.cuts))


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{flag} {text!r}: write layers such as 5,9") from None


def _report(result: CutResult) -> None:
    at = ",".join(str(cut) for cut in result.cuts)
    detail = result.reason or f"largest difference {result.max_abs_difference}"
    _say(f"  cut {at:>7}  {result.verdict:8} {detail}")


def _summary(results: Sequence[CutResult]) -> str:
    exact = sum(result.verdict == "exact" for result in results)
    return f"{exact} of {len(results)} exact"


def _document(
    plan: VerifyPlan,
    model: GgufModel,
    unsplit: ReferenceAnswer,
    results: Sequence[CutResult],
) -> dict[str, object]:
    from skippyd.model.identity import model_sha256  # noqa: PLC0415 - `--help` is quick
    from skippyd.runtime.build import build_facts  # noqa: PLC0415 - as above

    facts = build_facts()
    return {
        "schema": "skippy.verify/1",
        "arch": model.architecture,
        "layers": model.layer_count,
        "model_sha256": model_sha256(model),
        "llama_cpp_build": facts.llama_cpp_build,
        "cpu_features": facts.cpu_features,
        "capture": facts.capture,
        "threads": plan.threads,
        "chunk": plan.chunk,
        "prompt_tokens": len(unsplit.prompt),
        "decoded_tokens": len(unsplit.tokens),
        "cuts": [result.document() for result in results],
    }


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
