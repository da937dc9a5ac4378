"""The families of errors; every message says what, where, why and what to do."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of both programs (contract, "Everywhere")."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DEGRADED = 3
    UNREACHABLE = 4
    PERMISSION = 5
    REFUSED = 6
    STALE_TERM = 7
    INTERNAL = 70
    FENCE_STORE = 71
    TRY_AGAIN = 75
    BAD_CONFIGURATION = 78
    INTERRUPTED = 130


class SkippyError(Exception):
    """Anything this project raises on purpose; carries its exit code."""

    exit_code = ExitCode.FAILED


class UsageError(SkippyError):
    """A command line that cannot be acted on."""

    exit_code = ExitCode.USAGE


class ConfigError(SkippyError):
    """A configuration file or value that is wrong; the message holds its path."""

    exit_code = ExitCode.BAD_CONFIGURATION


class ModelError(SkippyError):
    """A model file that is broken, truncated or not what it claims to be."""


class RefusedError(SkippyError):
    """An architecture, cut or plan that is not offered, by name."""

    exit_code = ExitCode.REFUSED


class LocalProtocolError(SkippyError):
    """We were about to break the wire protocol."""

    exit_code = ExitCode.INTERNAL


class RemoteProtocolError(SkippyError):
    """The peer broke the wire protocol; the connection cannot go on."""


class FailureCode(IntEnum):
    """Why a stage gave a request up; travels in a Failure reply (contract, "Wire")."""

    PROTOCOL = 1
    KIND_NOT_SERVED = 2
    KV_FULL = 3
    BAD_BATCH = 4
    STAGE_LOST = 5
    FENCED = 6
    CANCELLED = 7
    TIMEOUT = 8
    SAMPLING = 9
    INTERNAL = 10


class StageFailureError(SkippyError):
    """One request could not go on; names the stage and the reason.

    Args:
        code: The failure code that travels on the wire.
        stage_index: The stage the failure is about.
        message: What happened, where, and what to do.
    """

    def __init__(self, code: FailureCode, stage_index: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.stage_index = stage_index
        self.message = message
