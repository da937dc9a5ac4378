"""A `skippyd` command that runs until it is told to stop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs

from support.stage_cli import COMMAND, eventually


if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from types import TracebackType

END_S = 10.0


@attrs.define(eq=False)
class RunningCommand:
    """One process; what it says goes into a file.

    Args:
        process: The child, in a session of its own.
        log: Its standard output and standard error.
    """

    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, arguments: Sequence[str], log: Path, *, cwd: Path) -> Self:
        """Start `skippyd ARGUMENTS`."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*COMMAND, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=cwd,
                start_new_session=True,
            )
        return cls(process, log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            sys.stderr.write(self.log.read_text())
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def wait_said(self, text: str, *, within_s: float = 30.0) -> None:
        """Wait until its output holds a text."""

        def has_said() -> bool:
            said = self.log.read_text()
            assert text in said or self.process.poll() is None, said
            return text in said

        eventually(has_said, f"says {text!r}", within_s=within_s)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        os.kill(self.process.pid, number)

    def exit_code(self) -> int:
        """Wait for its end."""
        return self.process.wait(END_S)


def descendants(pid: int) -> set[int]:
    """Every process below one, by the kernel's own list."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found |= {int(child), *descendants(int(child))}
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
