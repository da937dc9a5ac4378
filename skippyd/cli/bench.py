"""`skippyd bench`: figures as ratios, taken in one run; the last line is JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from skippyd.errors import ExitCode, UsageError


if TYPE_CHECKING:
    import argparse

    from skippyd.proving.bench import BenchPlan, SpeedFigures, StageOverhead

HELP = "measure a chain on this machine against the unsplit engine"
RATIO_DIGITS = 4
US_DIGITS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--model", type=Path, metavar="MODEL.gguf", help="default: SmolLM2-135M"
    )
    parser.add_argument("--repetitions", type=int, default=12, help="rounds (12)")
    parser.add_argument("--threads-per-stage", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="JSON only, no progress")


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print one line of JSON at the end."""
    from skippyd.cli.logs import log_to_stderr  # noqa: PLC0415 - `--help` is quick
    from skippyd.cli.stage_main import SWITCH_INTERVAL_SECONDS  # noqa: PLC0415
    from skippyd.model.fetching import fetch_model  # noqa: PLC0415 - as above
    from skippyd.proving.bench import (  # noqa: PLC0415 - as above
        BenchPlan,
        measure_overhead,
        measure_speed,
    )

    log_to_stderr("error")
    if arguments.repetitions < 1:
        raise UsageError(f"--repetitions is {arguments.repetitions}; 1 is the least")
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    plan = BenchPlan(
        model_path=arguments.model or fetch_model(),
        repetitions=arguments.repetitions,
        threads_per_stage=arguments.threads_per_stage,
    )
    say = _quiet if arguments.json else _say
    say(f"{plan.model_path.name}: memory of two stages")
    overheads = measure_overhead(plan)
    for overhead in overheads:
        say(
            f"  {overhead.model} stage-{overhead.stage_index}: "
            f"{overhead.overhead_bytes / 2**20:.1f} MiB beyond tensors and KV"
        )
    say("decoding, everything in turn")
    speed = measure_speed(plan, lambda line: say(f"  {line}"))
    sys.stdout.write(json.dumps(bench_document(plan, speed, overheads)) + "\n")
    return ExitCode.DONE


def bench_document(
    plan: BenchPlan, speed: SpeedFigures, overheads: list[StageOverhead]
) -> dict[str, object]:
    """The document `skippy.bench/1` of the contract, with the keys built so far."""
    from skippyd.runtime.build import build_facts  # noqa: PLC0415 - `--help` is quick

    facts = build_facts()
    document: dict[str, object] = {
        "schema": "skippy.bench/1",
        "machine": {
            "cpus": len(os.sched_getaffinity(0)),
            "llama_cpp_build": facts.llama_cpp_build,
            "cpu_features": facts.cpu_features,
        },
        "model": plan.model_path.name,
        "threads_per_stage": plan.threads_per_stage,
        "repetitions": plan.repetitions,
        "cuts": {"decode_ratio": [speed.cut], "stage_overhead_bytes": [speed.cut]},
    }
    figures = {
        "engine_ratio": (speed.engine_ratio, RATIO_DIGITS),
        "decode_ratio": (speed.decode_ratio, RATIO_DIGITS),
        "boundary_us_p50": (speed.boundary_us_p50, US_DIGITS),
        "boundary_us_p99": (speed.boundary_us_p99, US_DIGITS),
    }
    for name, (figure, digits) in figures.items():
        document[name], document[f"{name}_spread"] = figure.rounded(digits)
    document["stage_overhead_bytes"] = [o.overhead_bytes for o in overheads]
    document["stage_overhead_of"] = [
        f"{o.model} stage-{o.stage_index}" for o in overheads
    ]
    return document


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _quiet(_line: str) -> None:
    """Say nothing."""
