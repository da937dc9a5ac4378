"""What the parent of a stage process knows about it: its last words, end and memory."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import signal
from pathlib import Path

import attrs


KEPT_LINES = 20
LINE_MAX_BYTES = 512
"""Longer lines are cut: a tail is shown to people and sent to other nodes."""

CAUSE = re.compile(r"GGML_ASSERT|terminate called|[Aa]ssertion")
"""The line that says why native code gave up (contract, "Command output")."""

OWN_WORDS = "skippyd: "
"""How the last line of a program of ours begins when it ends on purpose."""


@attrs.define
class LogTail:
    """The cause line and the last lines of a log that arrives in pieces."""

    cause: str | None = None
    _lines: collections.deque[str] = attrs.Factory(
        lambda: collections.deque(maxlen=KEPT_LINES)
    )
    _partial: bytes = b""

    @property
    def lines(self) -> tuple[str, ...]:
        """The cause first, then the last lines, the oldest first."""
        rest = tuple(line for line in self._lines if line != self.cause)
        return rest if self.cause is None else (self.cause, *rest)

    def feed(self, data: bytes) -> list[str]:
        """Take bytes in; return the lines that they complete."""
        *whole, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LINE_MAX_BYTES:
            whole, self._partial = [*whole, self._partial], b""
        return [line for raw in whole if (line := self._keep(raw))]

    def end(self) -> list[str]:
        """Say that nothing more comes; return a last line without an end."""
        return self.feed(b"\n") if self._partial else []

    def _keep(self, raw: bytes) -> str:
        line = raw[:LINE_MAX_BYTES].decode(errors="replace").rstrip()
        if not line:
            return ""
        if self.cause is None and CAUSE.search(line):
            self.cause = line
        self._lines.append(line)
        return line


def describe_end(name: str, return_code: int, tail: LogTail) -> str:
    """Exit code or signal, the cause, and the last lines of the log.

    Args:
        name: The stage and its process.
        return_code: What the process exited with, negative for a signal.
        tail: What it said.
    """
    lines = tail.lines
    if return_code >= 0 and lines and lines[-1].startswith(OWN_WORDS):
        # It ended on purpose and said why: the log before that is no help.
        return f"{name}: {lines[-1].removeprefix(OWN_WORDS)}"
    if return_code >= 0:
        how = f"exited with {return_code}"
    else:
        how = f"was ended by {_signal_name(-return_code)}"
    said = "".join(f"\n  {line}" for line in lines)
    return f"{name} {how}" + (f"; it said:{said}" if said else "")


def stage_environment() -> dict[str, str]:
    """The environment of a stage process: the parent's, and quick native aborts."""
    return {**os.environ, "GGML_NO_BACKTRACE": "1"}


def resident_bytes(pid: int) -> int:
    """Memory a process holds: Pss of anonymous, file and shared pages, plus memfds.

    Source: the contract's measure ("Command output"). 0 when the process is gone. The
    kernel walks all its pages: not for the trio thread.
    """
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0
    wanted = {"Pss_Anon:", "Pss_File:", "Pss_Shmem:"}
    fields = [line.split() for line in rollup.splitlines()]
    pss = sum(int(field[1]) * 1024 for field in fields if field[0] in wanted)
    return pss + sum(map(_memfd_bytes, descriptors))


def _memfd_bytes(descriptor: Path) -> int:
    with contextlib.suppress(OSError):
        if str(descriptor.readlink()).startswith("/memfd:"):
            return descriptor.stat().st_blocks * 512
    return 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
