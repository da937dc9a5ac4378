"""`skippyd serve`: load one stage and show it over HTTP, for looking at it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from skippyd.cli.logs import LOG_LEVELS
from skippyd.cli.unbuilt import SERVE_LATER, refuse_unbuilt


if TYPE_CHECKING:
    import argparse

HELP = "load one stage and show it over HTTP (diagnostics)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags (skippy-facts 5.1)."""
    parser.add_argument("--config", type=Path, required=True, metavar="STAGE.json")
    parser.add_argument("--topology", type=Path, metavar="TOPOLOGY.json")
    parser.add_argument(
        "--bind-addr", metavar="HOST:PORT", help="default: the config's"
    )
    parser.add_argument("--log-level", default="info", choices=LOG_LEVELS)
    refuse_unbuilt(parser, SERVE_LATER)


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    import functools  # noqa: PLC0415 - `--help` is quick

    from skippyd.cli.logs import log_to_stderr  # noqa: PLC0415 - `--help` is quick
    from skippyd.cli.stage_main import unwrapped  # noqa: PLC0415 - as above
    from skippyd.config.endpoints import parse_endpoint  # noqa: PLC0415 - as above
    from skippyd.config.stage import load_stage_config  # noqa: PLC0415 - as above
    from skippyd.config.topology import load_topology  # noqa: PLC0415 - as above
    from skippyd.embedding import (  # noqa: PLC0415 - as above
        StageHttpOptions,
        start_stage_http,
    )

    log_to_stderr(arguments.log_level)
    bind = arguments.bind_addr
    options = StageHttpOptions(
        config=load_stage_config(arguments.config),
        topology=load_topology(arguments.topology) if arguments.topology else None,
        bind_addr=None if bind is None else parse_endpoint(bind),
    )
    return unwrapped(functools.partial(start_stage_http, options))
