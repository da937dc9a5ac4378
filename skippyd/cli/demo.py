"""`skippyd demo`: a model cut into stages answers, and proves that the cut changed nothing."""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from skippyd.errors import ExitCode, SkippyError, UsageError


if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from skippyd.cli.demo_screen import DemoScreen
    from skippyd.config.endpoints import Endpoint
    from skippyd.proving.chain import ChainPlan, LocalChain
    from skippyd.proving.demo import Answer, Proof, Question, StageFigures
    from skippyd.proving.logits_pipe import LogitsReader

HELP = "cut a model into stages on this machine, ask it, prove the answer"
DEFAULT_PROMPT = "Explain in two sentences why the sky is blue."
DEFAULT_SEED = 1
DEFAULT_STAGES = 3
WATCH_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags (contract, "Command output")."""
    parser.add_argument(
        "--model", type=Path, metavar="MODEL.gguf", help="default: SmolLM2-135M"
    )
    parser.add_argument("--stages", type=int, help="equal layer ranges (default 3)")
    parser.add_argument("--cuts", metavar="LIST", help="cut here instead: such as 1,29")
    parser.add_argument("--prompt", default=DEFAULT_PROMPT)
    parser.add_argument("--threads-per-stage", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy")
    parser.add_argument("--ctx-size", type=int, default=2048)
    parser.add_argument(
        "--openai-bind-addr",
        default="127.0.0.1:9337",
        metavar="HOST:PORT",
        help="port 0 takes a free one (default 127.0.0.1:9337)",
    )
    parser.add_argument("--once", action="store_true", help="end after the answer")
    parser.add_argument("--json", action="store_true", help="one JSON line at the end")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    from skippyd.cli.logs import log_to_stderr  # noqa: PLC0415 - `--help` is quick

    log_to_stderr("warning")
    _check(arguments)
    return run_demo(arguments)


def run_demo(
    arguments: argparse.Namespace, command: Sequence[str] | None = None
) -> int:
    """Start the chain, ask, prove, and serve on unless told to end.

    Args:
        arguments: The parsed flags.
        command: The stage program; tests put another one here.
    """
    from skippyd.cli.demo_screen import DemoScreen  # noqa: PLC0415 - `--help` is quick
    from skippyd.proving.chain import LocalChain  # noqa: PLC0415 - as above
    from skippyd.proving.logits_pipe import LogitsReader  # noqa: PLC0415 - as above
    from skippyd.proving.stage_process import STAGE_COMMAND  # noqa: PLC0415 - as above

    out: TextIO = sys.stderr if arguments.json else sys.stdout
    screen = DemoScreen(out)
    plan = _plan(arguments)
    question = _question(arguments)
    with LogitsReader() as logits:
        with screen.loading(plan) as on_progress:
            chain = LocalChain.start(
                plan,
                command=command or STAGE_COMMAND,
                logits_fd=logits.write_end,
                on_progress=on_progress,
            )
        with chain:
            logits.close_write_end()
            try:
                document = answer_and_prove(chain, question, logits, screen)
            except SkippyError as error:
                # A stage that ended is the reason why another one complains.
                death = chain.death()
                if death is None:
                    raise
                raise death from error
            if arguments.json:
                sys.stdout.write(json.dumps(document) + "\n")
                sys.stdout.flush()
            if not arguments.once:
                screen.serving(chain.openai_base_url or "", chain.plan.model_id)
                return serve_until_a_stage_ends(chain)
    return ExitCode.DONE if document["identical_to_unsplit"] else ExitCode.FAILED


def answer_and_prove(
    chain: LocalChain, question: Question, logits: LogitsReader, screen: DemoScreen
) -> dict[str, object]:
    """Ask the chain, show the answer and the proof; returns `skippy.demo/1`.

    Raises:
        SkippyError: A stage or the reference failed.
    """
    from skippyd.proving.demo import (  # noqa: PLC0415 - `--help` is quick
        ask,
        prove,
        stage_figures,
        wait_until_served,
    )

    with screen.waiting("waiting for a first token through the whole chain"):
        wait_until_served(chain)
    logits.clear()
    screen.question(question.prompt)
    answer = ask(chain, question, screen.text)
    figures = stage_figures(chain, answer.completion_tokens)
    screen.stages(figures)
    with screen.waiting("asking the unsplit model the same"):
        proof = prove(chain, question, answer, logits)
    screen.verdict(answer, proof)
    return demo_document(chain, question, answer, figures, proof)


def check_free(endpoint: Endpoint) -> None:
    """Fail before anything is loaded when an address cannot be listened on.

    Raises:
        SkippyError: Names the address and what to do.
    """
    import socket  # noqa: PLC0415 - `--help` is quick

    try:
        family, kind, _, _, address = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
            trial.listen(1)
    except OSError as error:
        raise SkippyError(
            f"cannot listen on {endpoint}: {error.strerror or error}; choose another "
            "--openai-bind-addr, or stop what holds the port (`ss -ltnp` shows it)"
        ) from error


def serve_until_a_stage_ends(chain: LocalChain) -> int:
    """Keep serving; returns 1 and says so when a stage is gone."""
    while True:
        for stage in chain.stages:
            if not stage.is_running:
                sys.stderr.write(f"skippyd: {stage.explain_death()}\n")
                return ExitCode.FAILED
        time.sleep(WATCH_SECONDS)


def demo_document(
    chain: LocalChain,
    question: Question,
    answer: Answer,
    figures: Sequence[StageFigures],
    proof: Proof,
) -> dict[str, object]:
    """The document `skippy.demo/1` of the contract."""
    import attrs  # noqa: PLC0415 - `--help` is quick

    from skippyd.model.gguf_model import open_model  # noqa: PLC0415 - as above
    from skippyd.model.identity import model_sha256  # noqa: PLC0415 - as above

    rows = [attrs.asdict(figure) for figure in figures]
    captures = {row.pop("capture") for row in rows} - {"none"}
    return {
        "schema": "skippy.demo/1",
        "model": str(chain.plan.model_path),
        "model_sha256": model_sha256(open_model(chain.plan.model_path)),
        "stages": rows,
        "capture": "python" if "python" in captures else "native",
        "openai_base_url": chain.openai_base_url,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "finish_reason": answer.finish_reason,
        "sampling": question.sampling(),
        "text": answer.text,
        "unsplit_text": proof.unsplit.text,
        "identical_to_unsplit": proof.is_identical,
        "max_abs_logit_difference": proof.max_abs_difference,
        "compared_logit_rows": proof.rows,
        "ttft_ms": round(answer.ttft_ms, 2),
        "tpot_ms": round(answer.tpot_ms, 2),
        "unsplit_tpot_ms": round(proof.unsplit.tpot_ms, 2),
    }


def _check(arguments: argparse.Namespace) -> None:
    if arguments.stages is not None and arguments.cuts is not None:
        raise UsageError("give --stages or --cuts, not both")
    for name in ("threads_per_stage", "max_tokens", "ctx_size"):
        if getattr(arguments, name) < 1:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is {getattr(arguments, name)}; 1 is the least")
    if not 0 <= arguments.temperature <= 100:  # noqa: PLR2004 - skippy-facts 5.3
        raise UsageError(f"--temperature {arguments.temperature}: 0 to 100")


def _plan(arguments: argparse.Namespace) -> ChainPlan:
    from skippyd.config.endpoints import parse_endpoint  # noqa: PLC0415 - as above
    from skippyd.model.fetching import fetch_model  # noqa: PLC0415 - as above
    from skippyd.model.gguf_model import open_model  # noqa: PLC0415 - as above
    from skippyd.model.refusals import check_range  # noqa: PLC0415 - as above
    from skippyd.proving.chain import (  # noqa: PLC0415 - as above
        ChainPlan,
        bounds_of_cuts,
        even_bounds,
    )

    path: Path = arguments.model or fetch_model()
    model = open_model(path)
    layers = model.layer_count
    if arguments.cuts is not None:
        bounds = bounds_of_cuts(_numbers(arguments.cuts), layers)
    else:
        stages = DEFAULT_STAGES if arguments.stages is None else arguments.stages
        bounds = even_bounds(stages, layers)
    for start, end in itertools.pairwise(bounds):
        check_range(model, start, end)
    check_free(parse_endpoint(arguments.openai_bind_addr))
    return ChainPlan(
        model_path=path,
        model_id=path.stem,
        bounds=bounds,
        threads_per_stage=arguments.threads_per_stage,
        ctx_size=arguments.ctx_size,
        openai_bind_addr=arguments.openai_bind_addr,
    )


def _question(arguments: argparse.Namespace) -> Question:
    from skippyd.proving.demo import Question  # noqa: PLC0415 - `--help` is quick

    return Question(
        prompt=arguments.prompt,
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
        seed=DEFAULT_SEED,
    )


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--cuts {text!r}: write layers such as 10,20") from None
