"""Flags that are known and not built yet: refused by name, never ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from skippyd.errors import UsageError


if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

SERVE_LATER = (
    "--metrics-otlp-grpc",
    "--telemetry-queue-capacity",
    "--telemetry-level",
)
OPENAI_LATER = (
    "default-max-tokens",
    "generation-queue-capacity",
    "generation-admission-timeout-secs",
    "adaptive-generation-concurrency",
    "prefill-chunk-policy",
    "prefill-chunk-schedule",
    "prefill-adaptive-start",
    "prefill-adaptive-step",
    "prefill-adaptive-max",
    "prefill-adaptive-target-ms",
    "draft-model-path",
    "draft-n-gpu-layers",
    "speculative-window",
    "adaptive-speculative-window",
    "native-mtp-draft-model-path",
    "speculative-config",
    "guardrails",
)
BINARY_LATER = (
    "--downstream-wire-delay-ms",
    "--downstream-wire-mbps",
    "--downstream-wire-jitter-ms",
    "--downstream-wire-stall-ms",
    "--downstream-wire-stall-p",
    *(f"--openai-{name}" for name in OPENAI_LATER),
)
OPENAI_SERVER_LATER = tuple(f"--{name}" for name in OPENAI_LATER)


def refuse_unbuilt(parser: argparse.ArgumentParser, flags: Sequence[str]) -> None:
    """Let a parser know these flags only to refuse them."""
    import argparse  # noqa: PLC0415 - a class is made from it, at parser time only

    class Refuse(argparse.Action):
        def __call__(self, *_arguments: object, **_options: object) -> NoReturn:
            raise UsageError(
                f"{self.option_strings[0]} is not supported yet; leave it out"
            )

    for flag in flags:
        parser.add_argument(
            flag, action=Refuse, nargs="?", default=None, help=argparse.SUPPRESS
        )
