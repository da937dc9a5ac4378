"""`skippyd serve-openai`: a whole model in one stage, for OpenAI clients."""

from __future__ import annotations

import argparse
from pathlib import Path

from skippyd.cli.logs import LOG_LEVELS
from skippyd.cli.unbuilt import OPENAI_SERVER_LATER, SERVE_LATER, refuse_unbuilt
from skippyd.errors import UsageError


HELP = "serve a whole model, held by one stage, to OpenAI clients"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags (skippy-facts 5.1)."""
    parser.add_argument("--config", type=Path, required=True, metavar="STAGE.json")
    parser.add_argument("--topology", type=Path, metavar="TOPOLOGY.json")
    parser.add_argument(
        "--bind-addr",
        default="127.0.0.1:9337",
        metavar="HOST:PORT",
        help="default 127.0.0.1:9337",
    )
    parser.add_argument("--model-id", help="default: the config's model_id")
    parser.add_argument("--generation-concurrency", type=int)
    parser.add_argument("--first-stage-addr", help=argparse.SUPPRESS)
    parser.add_argument("--log-level", default="info", choices=LOG_LEVELS)
    refuse_unbuilt(parser, (*SERVE_LATER, *OPENAI_SERVER_LATER))


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    import functools  # noqa: PLC0415 - `--help` is quick

    from skippyd.cli.logs import log_to_stderr  # noqa: PLC0415 - `--help` is quick
    from skippyd.cli.stage_main import unwrapped  # noqa: PLC0415 - as above
    from skippyd.config.endpoints import parse_endpoint  # noqa: PLC0415 - as above
    from skippyd.config.stage import load_stage_config  # noqa: PLC0415 - as above
    from skippyd.config.topology import load_topology  # noqa: PLC0415 - as above
    from skippyd.embedding import (  # noqa: PLC0415 - as above
        EmbeddedOpenAiArgs,
        start_embedded_openai,
    )

    if arguments.first_stage_addr is not None:
        raise UsageError(
            "--first-stage-addr is no longer supported: start stage 0 with "
            "`skippyd serve-binary --openai-bind-addr`"
        )
    log_to_stderr(arguments.log_level)
    args = EmbeddedOpenAiArgs(
        bind_addr=parse_endpoint(arguments.bind_addr),
        model_id=arguments.model_id,
        generation_concurrency=arguments.generation_concurrency,
        config=load_stage_config(arguments.config),
        topology=load_topology(arguments.topology) if arguments.topology else None,
    )
    return unwrapped(functools.partial(start_embedded_openai, args))
