"""`skippyd serve-binary`: one stage of a chain, in this process."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from skippyd.cli.logs import LOG_LEVELS
from skippyd.cli.unbuilt import BINARY_LATER, SERVE_LATER, refuse_unbuilt
from skippyd.errors import UsageError


if TYPE_CHECKING:
    from skippyd.config.stage import StageConfig
    from skippyd.embedding import BinaryStageOptions, EmbeddedOpenAiArgs

HELP = "serve one stage of a chain over the binary protocol"
LONGEST_SECONDS = 86_400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags (skippy-facts 5.1, and the contract's)."""
    parser.add_argument("--config", type=Path, required=True, metavar="STAGE.json")
    parser.add_argument("--topology", type=Path, metavar="TOPOLOGY.json")
    parser.add_argument(
        "--bind-addr", metavar="HOST:PORT", help="default: the config's"
    )
    _add_flow_flags(parser)
    _add_openai_flags(parser)
    parser.add_argument("--log-level", default="info", choices=LOG_LEVELS)
    parser.add_argument("--lifecycle-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--listen-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--logits-fd", type=int, help=argparse.SUPPRESS)
    refuse_unbuilt(parser, (*SERVE_LATER, *BINARY_LATER))


def _add_flow_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-inflight",
        type=int,
        default=4,
        help="prefill frames under way downstream (default 4)",
    )
    parser.add_argument(
        "--reply-credit-limit",
        type=int,
        help="unanswered prefill frames (default: max-inflight less one)",
    )
    parser.add_argument(
        "--async-prefill-forward",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write prefill frames in the background (default)",
    )
    parser.add_argument(
        "--downstream-connect-timeout-secs",
        type=float,
        default=60.0,
        help="how long a downstream stage may take to appear (default 60)",
    )
    parser.add_argument(
        "--stage-reply-timeout-secs",
        type=float,
        default=60.0,
        help="how long the chain may take to answer (default 60)",
    )


def _add_openai_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--openai-bind-addr",
        metavar="HOST:PORT",
        help="serve OpenAI clients here (stage 0 only)",
    )
    parser.add_argument("--openai-model-id", help="default: the config's model_id")
    parser.add_argument(
        "--openai-generation-concurrency",
        "--generation-concurrency",
        type=int,
        help="requests answered at once (default: the config's lane_count)",
    )
    parser.add_argument(
        "--openai-prefill-chunk-size",
        type=int,
        help="prompt tokens a chunk (default: the config's prefill_chunk_size)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from skippyd.cli.logs import log_to_stderr  # noqa: PLC0415 - `--help` is quick
    from skippyd.cli.stage_main import run_stage  # noqa: PLC0415 - `--help` is quick
    from skippyd.config.stage import load_stage_config  # noqa: PLC0415 - as above
    from skippyd.config.topology import load_topology  # noqa: PLC0415 - as above

    log_to_stderr(arguments.log_level)
    config = _with_flags(load_stage_config(arguments.config), arguments)
    _check_logits_fd(arguments, config)
    topology = load_topology(arguments.topology) if arguments.topology else None
    options = _options(arguments, config)
    import attrs  # noqa: PLC0415 - `--help` is quick

    return run_stage(
        attrs.evolve(options, topology=topology),
        lifecycle_fd=arguments.lifecycle_fd,
        logits_fd=arguments.logits_fd,
    )


def _with_flags(config: StageConfig, arguments: argparse.Namespace) -> StageConfig:
    import attrs  # noqa: PLC0415 - `--help` is quick

    from skippyd.config.endpoints import parse_endpoint  # noqa: PLC0415 - as above

    if arguments.bind_addr is not None:
        config = attrs.evolve(config, bind_addr=parse_endpoint(arguments.bind_addr))
    if arguments.openai_prefill_chunk_size is not None:
        config = attrs.evolve(
            config, prefill_chunk_size=arguments.openai_prefill_chunk_size
        )
    return config


def _check_logits_fd(arguments: argparse.Namespace, config: StageConfig) -> None:
    if arguments.logits_fd is None:
        return
    if arguments.lifecycle_fd is None:
        raise UsageError(
            "--logits-fd is only for stages that `skippyd demo` and `skippyd verify` "
            "start; leave it out"
        )
    if config.downstream is not None:
        raise UsageError(
            f"--logits-fd: {config.stage_id} predicts nothing; only the final stage "
            "has logits"
        )


def _options(arguments: argparse.Namespace, config: StageConfig) -> BinaryStageOptions:
    from skippyd.embedding import (  # noqa: PLC0415 - `--help` is quick
        BinaryStageOptions,
        FlowControl,
        StageTimings,
    )

    _check_flow_flags(arguments)
    return BinaryStageOptions(
        config,
        timings=StageTimings(
            connect=arguments.downstream_connect_timeout_secs,
            reply=arguments.stage_reply_timeout_secs,
            frame=min(StageTimings().frame, arguments.stage_reply_timeout_secs),
        ),
        flow=FlowControl(
            max_inflight=arguments.max_inflight,
            reply_credit_limit=arguments.reply_credit_limit,
            async_forward=arguments.async_prefill_forward,
        ),
        openai=_openai(arguments),
        listener=None if arguments.listen_fd is None else inherited(arguments),
    )


def _check_flow_flags(arguments: argparse.Namespace) -> None:
    least = {"max_inflight": 1, "reply_credit_limit": 0}
    for name, smallest in least.items():
        value = getattr(arguments, name)
        if value is not None and value < smallest:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} is {value}; {smallest} is the least")
    for name in ("downstream_connect_timeout_secs", "stage_reply_timeout_secs"):
        value = getattr(arguments, name)
        if not 0 < value <= LONGEST_SECONDS:  # nan fails this too
            flag = "--" + name.replace("_", "-")
            raise UsageError(
                f"{flag} is {value:g}; write more than 0 and at most "
                f"{LONGEST_SECONDS:g} seconds"
            )


def inherited(arguments: argparse.Namespace) -> socket.socket:
    """The listening socket that the process which started this one made."""
    try:
        return socket.socket(fileno=arguments.listen_fd)
    except OSError as error:
        raise UsageError(
            f"--listen-fd {arguments.listen_fd} is no inherited socket: "
            f"{error.strerror}"
        ) from error


def _openai(arguments: argparse.Namespace) -> EmbeddedOpenAiArgs | None:
    from skippyd.config.endpoints import parse_endpoint  # noqa: PLC0415 - as above
    from skippyd.embedding import EmbeddedOpenAiArgs  # noqa: PLC0415 - as above

    if arguments.openai_bind_addr is None:
        return None
    return EmbeddedOpenAiArgs(
        bind_addr=parse_endpoint(arguments.openai_bind_addr),
        model_id=arguments.openai_model_id,
        generation_concurrency=arguments.openai_generation_concurrency,
    )
