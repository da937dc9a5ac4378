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
DEATH_SECONDS = 0.2
READY_SECONDS = 900.0
RECEIVE_BYTES = 65_536
LINE_MAX_BYTES = 65_536
EVENT_MAX_BYTES = 1 << 20
OWN_WORDS = "skippyd: "
"""How the last line of a program of ours begins when it ends on purpose."""
LAST_READS = 64
REFUSALS = frozenset({ExitCode.REFUSED, ExitCode.FAILED, -signal.SIGABRT})
CAUSE = re.compile(r"GGML_ASSERT|assertion|terminate called|Assertion")


class StageProcessError(SkippyError):
    """A stage process ended or did not answer.

    Args:
        message: What happened, with the stage's own last lines.
        exit_code: What the process exited with, negative for a signal.

    Attributes:
        is_refusal: The layers were refused, by our rules or by llama.cpp's own checks.
    """

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.is_refusal = exit_code in REFUSALS
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
    _wake: int = attrs.Factory(lambda: os.eventfd(0, os.EFD_CLOEXEC))
    _is_finished: bool = False

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
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            lifecycle = ("--lifecycle-fd", str(theirs.fileno()))
            process = subprocess.Popen(
                [*command, "serve-binary", *arguments, *lifecycle],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno(), *pass_fds],
                start_new_session=True,
                env={**os.environ, "GGML_NO_BACKTRACE": "1"},
            )
            undo.pop_all()
        child = cls(
            stage_id=stage_id,
            process=process,
            lifecycle=ours,
            on_progress=on_progress,
        )
        child._reader = threading.Thread(
            target=child._keep_stderr,
            args=(echo_stderr,),
            name=f"log of {stage_id}",
            daemon=True,
        )
        child._reader.start()
        return child

    def wait_ready(self, timeout_s: float = READY_SECONDS) -> dict[str, object]:
        """Wait for the `ready` event.

        Raises:
            StageProcessError: The process ended, or time ran out.
        """
        return wait_all_ready([self], timeout_s)[0]

    def status(self) -> dict[str, object]:
        """Ask for the stage's counters.

        Raises:
            StageProcessError: It does not answer.
        """
        try:
            self.lifecycle.sendall(b"status\n")
        except OSError as error:
            raise self._death("was asked for its status") from error
        deadline = time.monotonic() + STATUS_SECONDS
        while True:
            _wait_readable([self], deadline)
            for event in self.take_events():
                if event.get("event") == "status":
                    return event

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
            self.process.wait(STOP_SECONDS)
        self._finish()

    def kill(self) -> None:
        """End the process at once, as a fault would."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)
        self._finish()

    def explain_death(self) -> str:
        """Exit code or signal, the cause, and the last lines of its log."""
        code = self.process.poll()
        if code is None:
            return f"{self.name} is still running"
        self._end_reader()
        lines = [self._cause] if self._cause is not None else []
        lines += [line for line in self.last_lines if line != self._cause]
        if code >= 0 and lines and lines[-1].startswith(OWN_WORDS):
            # It ended on purpose and said why: the log before that is no help.
            return f"{self.name}: {lines[-1].removeprefix(OWN_WORDS)}"
        how = f"exited with {code}" if code >= 0 else f"was ended by {_signal(-code)}"
        said = "".join(f"\n  {line}" for line in lines)
        return f"{self.name} {how}" + (f"; it said:{said}" if said else "")

    @property
    def name(self) -> str:
        """The stage and its process, for messages."""
        return f"{self.stage_id} (pid {self.process.pid})"

    def take_events(self) -> list[dict[str, object]]:
        """Events that have arrived, for a readable lifecycle socket.

        Loading events are handed to `on_progress` and not returned.

        Raises:
            StageProcessError: The process closed its end, or does not speak JSON lines.
        """
        data = self._receive()
        if not data:
            raise self._death()
        *lines, self._buffered = (self._buffered + data).split(b"\n")
        if len(self._buffered) > EVENT_MAX_BYTES:
            raise StageProcessError(f"{self.name} sent an event without an end")
        events = [self._parsed(line) for line in lines]
        for event in events:
            share = event.get("done")
            if event.get("event") == "loading" and isinstance(share, float):
                self.on_progress(share)
        return [event for event in events if event.get("event") != "loading"]

    def death(self) -> StageProcessError | None:
        """How the process ended; None while it lives."""
        if not select.select([self.lifecycle], [], [], DEATH_SECONDS)[0]:
            return None
        return None if self._peek() else self._death()

    def _parsed(self, line: bytes) -> dict[str, object]:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            raise StageProcessError(
                f"{self.name} sent {line[:80]!r}, which is no event"
            )
        return event

    def _receive(self) -> bytes:
        try:
            return self.lifecycle.recv(RECEIVE_BYTES)
        except ConnectionResetError:
            return b""

    def _peek(self) -> bytes:
        try:
            return self.lifecycle.recv(1, socket.MSG_PEEK)
        except ConnectionResetError:
            return b""

    def _death(self, while_: str = "was starting or serving") -> StageProcessError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_SECONDS)
        code = self.process.poll()
        if code is None:
            return StageProcessError(
                f"{self.name} closed its line to us while it {while_}, and runs on"
            )
        return StageProcessError(self.explain_death(), code)

    def _keep_stderr(self, echo: bool) -> None:
        """Keep what the process says, until its end or until told.

        A grandchild may hold the pipe open for ever, so its end alone is no end.
        """
        assert self.process.stderr is not None
        descriptor = self.process.stderr.fileno()
        buffered, reads_left = b"", LAST_READS
        while reads_left:
            readable, _, _ = select.select([descriptor, self._wake], [], [])
            reads_left -= self._wake in readable
            data = os.read(descriptor, RECEIVE_BYTES) if descriptor in readable else b""
            *lines, buffered = (buffered + data).split(b"\n")
            if not data or len(buffered) > LINE_MAX_BYTES:
                lines, buffered = [*lines, buffered], b""
            for line in lines:
                self._keep_line(line.decode(errors="replace").rstrip(), echo)
            if not data:
                return

    def _keep_line(self, line: str, echo: bool) -> None:
        if not line:
            return
        if self._cause is None and CAUSE.search(line):
            self._cause = line
        self.last_lines.append(line)
        if echo:
            print(f"{self.stage_id}: {line}", file=sys.stderr, flush=True)  # noqa: T201 - a stage's log, passed through

    def _end_reader(self) -> None:
        """Let the reader take what the dead process left in its pipe, and end."""
        if self._is_finished or self._reader is None:
            return
        os.eventfd_write(self._wake, 1)
        self._reader.join(STOP_SECONDS)

    def _finish(self) -> None:
        if self._is_finished:
            return
        self._end_reader()
        self._is_finished = True
        os.close(self._wake)
        self.lifecycle.close()
        if self.process.stderr is not None:
            self.process.stderr.close()


def wait_all_ready(
    stages: Sequence[StageProcess], timeout_s: float = READY_SECONDS
) -> list[dict[str, object]]:
    """Wait until every stage is ready; the first one that ends, ends the wait.

    Returns:
        Their `ready` events, in the order of the stages.

    Raises:
        StageProcessError: A stage ended, or time ran out.
    """
    deadline = time.monotonic() + timeout_s
    ready: dict[int, dict[str, object]] = {}
    while len(ready) < len(stages):
        for stage in _wait_readable(stages, deadline):
            for event in stage.take_events():
                if event.get("event") == "ready":
                    ready[id(stage)] = event
    return [ready[id(stage)] for stage in stages]


def _wait_readable(
    stages: Sequence[StageProcess], deadline: float
) -> list[StageProcess]:
    left = max(0.0, deadline - time.monotonic())
    readable, _, _ = select.select([stage.lifecycle for stage in stages], [], [], left)
    if not readable:
        names = ", ".join(stage.name for stage in stages)
        raise StageProcessError(f"no sign in time from {names}")
    return [stage for stage in stages if stage.lifecycle in readable]


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


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
