"""`skippyctl plan`: decide offline where a model's layers would go."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from skippyd.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags; those that repeat a key of the file override it."""
    parser.add_argument(
        "--nodes", type=Path, required=True, metavar="FILE", help="the nodes.toml"
    )
    parser.add_argument(
        "--model", type=Path, metavar="PATH", help="GGUF file; overrides [model]"
    )
    parser.add_argument(
        "--max-vram",
        metavar="SIZE",
        help="most memory to use on each node, as in 24GiB",
    )
    parser.add_argument(
        "--context", type=_whole, metavar="TOKENS", help="this context, no other"
    )
    parser.add_argument(
        "--lanes", type=_whole, metavar="N", help="parallel lanes (4 when not given)"
    )
    parser.add_argument(
        "--target-tpot-ms",
        type=_milliseconds,
        metavar="MS",
        help="network time an output token may take",
    )
    parser.add_argument(
        "--explain", action="store_true", help="list the candidates tried"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one line of JSON instead"
    )
    parser.add_argument(
        "--memory-map", type=Path, metavar="SVG", help="write the picture to a file"
    )
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="colours on standard output",
    )


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 10):  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _milliseconds(text: str) -> float:
    from skippyd.config.nodes import MILLISECONDS_MAX  # noqa: PLC0415 - lazy

    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MILLISECONDS_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of milliseconds from 0 to {MILLISECONDS_MAX}"
        )
    return value


def run(arguments: argparse.Namespace) -> ExitCode:
    """Plan, show the result, and tell by the exit code whether there is a plan."""
    from skippyctl.planning import Wishes, plan_from_files  # noqa: PLC0415 - lazy
    from skippyctl.show import show_plan, write_map  # noqa: PLC0415 - lazy
    from skippyd.errors import ExitCode  # noqa: PLC0415 - lazy

    outcome = plan_from_files(
        arguments.nodes,
        Wishes(
            model_path=arguments.model,
            max_vram=arguments.max_vram,
            context=arguments.context,
            lanes=arguments.lanes,
            target_tpot_ms=arguments.target_tpot_ms,
        ),
    )
    if arguments.memory_map is not None:
        write_map(outcome, arguments.memory_map)
    show_plan(
        outcome,
        explain=arguments.explain,
        as_json=arguments.json,
        color=arguments.color,
    )
    return ExitCode.REFUSED if outcome.plan is None else ExitCode.DONE
