"""One stage process: started, watched until ready, asked, stopped, its death explained."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import attrs

from skippyd.errors import ExitCode, SkippyError


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STAGE_COMMAND = (sys.executable, "-m", "skippyd")
KEPT_LINES = 20
STOP_SECONDS = 15.0
STATUS_SECONDS = 10.0
READY_SECONDS = 900.0
RECEIVE_BYTES = 65_536
CAUSE = re.compile(r"GGML_ASSERT|assertion|terminate called|Assertion")


class StageProcessError(SkippyError):
    """A stage process ended or did not answer.

    Args:
        message: What happened, with the stage's own last lines.
        exit_code: What the process exited with, when it exited on purpose.
    """

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        if exit_code in set(ExitCode):
            self.exit_code = ExitCode(exit_code)


@attrs.define(eq=False, kw_only=True)
class StageProcess:
    """A running child.

    Args:
        stage_id: For messages.
        process: The child.
        lifecycle: Our end of its lifecycle socket.
        on_progress: Called with the share loaded.
    """

    stage_id: str
    process: subprocess.Popen[bytes]
    lifecycle: socket.socket
    on_progress: Callable[[float], None] = lambda _share: None
    last_lines: collections.deque[str] = attrs.Factory(
        lambda: collections.deque(maxlen=KEPT_LINES)
    )
    _buffered: bytes = b""
    _cause: str | None = None
    _reader: threading.Thread | None = None

    @classmethod
    def start(
        cls,
        stage_id: str,
        arguments: Sequence[str],
        *,
        command: Sequence[str] = STAGE_COMMAND,
        pass_fds: Sequence[int] = (),
        on_progress: Callable[[float], None] = lambda _share: None,
        echo_stderr: bool = False,
    ) -> Self:
        """Start `command serve-binary ARGUMENTS`; call it on the main thread.

        The parent-death signal follows the thread that forked, so that thread has to
        live as long as the child shall.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            process = subprocess.Popen(
                [
                    *command,
                    "serve-binary",
                    *arguments,
                    "--lifecycle-fd",
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno(), *pass_fds],
                start_new_session=True,
                env={**os.environ, "GGML_NO_BACKTRACE": "1"},
            )
        child = cls(
            stage_id=stage_id,
            process=process,
            lifecycle=ours,
            on_progress=on_progress,
        )
        child._reader = threading.Thread(
            target=child._keep_stderr, args=(echo_stderr,), daemon=True
        )
        child._reader.start()
        return child

    def wait_ready(self, timeout_s: float = READY_SECONDS) -> dict[str, object]:
        """Wait for the `ready` event.

        Raises:
            StageProcessError: The process ended, or time ran out.
        """
        return self._wait_event("ready", timeout_s)

    def status(self) -> dict[str, object]:
        """Ask for the stage's counters.

        Raises:
            StageProcessError: It does not answer.
        """
        try:
            self.lifecycle.sendall(b"status\n")
        except OSError as error:
            raise self._death("was asked for its status") from error
        return self._wait_event("status", STATUS_SECONDS)

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End the process, kindly first, and reap it."""
        with contextlib.suppress(OSError):
            self.lifecycle.shutdown(socket.SHUT_RDWR)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._finish()

    def kill(self) -> None:
        """End the process at once, as a fault would."""
        self.process.kill()
        self.process.wait()
        self._finish()

    def explain_death(self) -> str:
        """Exit code or signal, the cause, and the last lines of its log."""
        code = self.process.poll()
        if code is None:
            how = "is still running"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"exited with {code}"
        lines = [self._cause] if self._cause is not None else []
        lines += [line for line in self.last_lines if line != self._cause]
        said = "".join(f"\n  {line}" for line in lines)
        return f"{self.stage_id} (pid {self.process.pid}) {how}" + (
            f"; it said:{said}" if said else ""
        )

    def _wait_event(self, wanted: str, timeout_s: float) -> dict[str, object]:
        deadline = time.monotonic() + timeout_s
        while True:
            event = self._next_event(deadline)
            match event.get("event"):
                case "loading":
                    share = event.get("done")
                    self.on_progress(share if isinstance(share, float) else 0.0)
                case name if name == wanted:
                    return event
                case _:
                    continue

    def _next_event(self, deadline: float) -> dict[str, object]:
        while b"\n" not in self._buffered:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.lifecycle], [], [], left)[0]:
                raise StageProcessError(
                    f"{self.stage_id} (pid {self.process.pid}) gave no sign in time"
                )
            data = self._receive()
            if not data:
                raise self._death("was starting or serving")
            self._buffered += data
        line, _, self._buffered = self._buffered.partition(b"\n")
        event = json.loads(line)
        assert isinstance(event, dict)
        return event

    def _receive(self) -> bytes:
        try:
            return self.lifecycle.recv(RECEIVE_BYTES)
        except ConnectionResetError:
            return b""

    def _death(self, while_: str) -> StageProcessError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        self._join_reader()
        code = self.process.poll()
        return StageProcessError(
            f"{self.explain_death()} while it {while_}"
            if code is None or code < 0
            else self.explain_death(),
            code,
        )

    def _keep_stderr(self, echo: bool) -> None:
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            line = raw.decode(errors="replace").rstrip()
            if self._cause is None and CAUSE.search(line):
                self._cause = line
            self.last_lines.append(line)
            if echo:
                print(f"{self.stage_id}: {line}", file=sys.stderr, flush=True)  # noqa: T201 - a stage's log, passed through

    def _join_reader(self) -> None:
        if self._reader is not None:
            self._reader.join(1.0)

    def _finish(self) -> None:
        self._join_reader()
        self.lifecycle.close()
        if self.process.stderr is not None:
            self.process.stderr.close()


def resident_bytes(pid: int) -> int:
    """Memory a process holds: Pss of anonymous, file and shared pages, plus memfds.

    Source: the contract's measure ("Command output"). 0 when the process is gone.
    """
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    wanted = {"Pss_Anon:", "Pss_File:", "Pss_Shmem:"}
    fields = [line.split() for line in rollup.splitlines()]
    pss = sum(int(field[1]) * 1024 for field in fields if field[0] in wanted)
    return pss + _memfd_bytes(pid)


def _memfd_bytes(pid: int) -> int:
    total = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(entry.readlink()).startswith("/memfd:"):
                total += entry.stat().st_blocks * 512
    return total
