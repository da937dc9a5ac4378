"""Incident safe mode: requested on disk or by the environment, in force from a start on.

Whatever is requested while the daemon runs takes effect at its next start; what is in
force is decided once, so that both can be shown apart.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import attrs

from skippyd.config.convert import Edge, structure
from skippyd.config.documents import parse_toml, read_document
from skippyd.coordination.identity import write_atomically
from skippyd.errors import ConfigError, UsageError


if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

VARIABLE = "SKIPPY_ITERATION_SCHEDULER_SAFE_MODE"
SCHEMA = "skippy.safe-mode-request/1"
LONGEST_REASON = 500
ON_WORDS = frozenset({"1", "true", "yes", "on"})
OFF_WORDS = frozenset({"", "0", "false", "no", "off"})


@attrs.frozen(kw_only=True)
class SafeModeRequest:
    """What an operator wants from the next start on; the content of `safe-mode.toml`.

    Args:
        reason: For those who find it on.
        since: When it was requested (RFC 3339, UTC).
        by_uid: Who requested it.
    """

    schema: str = SCHEMA
    reason: str
    since: str
    by_uid: int


@attrs.define(eq=False)
class SafeModeSwitch:
    """The request on disk, beside what is in force.

    Args:
        path: `safe-mode.toml` of the state directory.
        is_in_environment: Whether the variable asks for it.
        is_effective: Whether it is in force since this start.
    """

    path: Path
    is_in_environment: bool
    request: SafeModeRequest | None = None
    is_effective: bool = False

    @classmethod
    def at_start(cls, path: Path, environment: Mapping[str, str]) -> SafeModeSwitch:
        """Read the request and decide what is in force; to be called once.

        Raises:
            ConfigError: The file or the variable is not understood. Not to start is
                safer than to start without the safe mode that was asked for.
        """
        request = read_request(path)
        is_asked = is_asked_for(environment)
        return cls(path, is_asked, request, is_asked or request is not None)

    @property
    def is_requested(self) -> bool:
        """Whether the next start will be in safe mode."""
        return self.is_in_environment or self.request is not None

    @property
    def origin(self) -> str:
        """Where the request comes from: file, environment or both; empty when off."""
        found = [
            name
            for name, is_asked in (
                ("file", self.request is not None),
                ("environment", self.is_in_environment),
            )
            if is_asked
        ]
        return ", ".join(found)

    @property
    def reason(self) -> str:
        """Why it was requested."""
        if self.request is not None:
            return self.request.reason
        return f"{VARIABLE} is set" if self.is_in_environment else ""

    def turn_on(self, reason: str, *, by_uid: int, now_unix_s: float) -> None:
        """Make a request durable; a blocking write, call it in a thread.

        Raises:
            UsageError: The reason is empty, too long or not printable.
            ConfigError: It cannot be written.
        """
        if not 0 < len(reason) <= LONGEST_REASON or not reason.isprintable():
            raise UsageError(f"a reason is 1 to {LONGEST_REASON} printable characters")
        since = datetime.fromtimestamp(int(now_unix_s), UTC).isoformat()
        request = SafeModeRequest(
            reason=reason, since=since.replace("+00:00", "Z"), by_uid=by_uid
        )
        try:
            write_atomically(self.path, _written(request))
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self.request = request

    def turn_off(self) -> None:
        """Take the request back, durably; blocking as `turn_on`.

        Raises:
            ConfigError: The file cannot be removed.
        """
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self.request = None


def read_request(path: Path) -> SafeModeRequest | None:
    """Read the request, None when there is none.

    Raises:
        ConfigError: It is there and cannot be read.
    """
    if not path.exists():
        return None
    source = str(path)
    document = parse_toml(read_document(path), source=source)
    request = structure(document, SafeModeRequest, source=source, edge=Edge.TOML)
    if request.schema != SCHEMA:
        raise ConfigError(
            f"{path}: its schema is {request.schema!r}, not {SCHEMA!r}; remove the "
            "file to start without safe mode, or write it anew with skippyctl"
        )
    return request


def now_unix_s() -> float:
    """Wall time, for records that people read."""
    return time.time()


def _written(request: SafeModeRequest) -> bytes:
    # A printable JSON string is a TOML string.
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in attrs.asdict(request).items()
    ]
    return "\n".join([*lines, ""]).encode()


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether the variable asks for safe mode.

    Raises:
        ConfigError: It says neither yes nor no.
    """
    text = environment.get(VARIABLE, "")
    word = text.strip().lower()
    if word in ON_WORDS or word in OFF_WORDS:
        return word in ON_WORDS
    raise ConfigError(f"{VARIABLE}={text!r}: write 1 or 0")


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} cannot be written: {error.strerror or error}; nothing has changed: "
        f"free space and check the owner, or set {VARIABLE}=1 for the service"
    )
