"""Stage processes started from the command line, and what they hold at one moment."""

from __future__ import annotations

import contextlib
import json
import os
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


if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMMAND = (sys.executable, "-m", "skippyd")
READY_S = 30.0
END_S = 10.0
LOOK_AGAIN_S = 0.01
# Trio keeps idle workers for ten seconds, under the first name; the other answers us.
IDLE_OR_ASKED = ("Trio thread ", "_tell_status ")
COUNTERS = ("lanes", "busy_lanes", "idle_lanes", "sessions", "open_returns")


def eventually(is_so: Callable[[], bool], what: str, *, within_s: float = 5.0) -> None:
    """Look until something is so.

    Raises:
        AssertionError: It was not, in time.
    """
    give_up = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < give_up, f"not within {within_s:g} s: {what}"
        threading.Event().wait(LOOK_AGAIN_S)


def free_port() -> int:
    """A port of loopback that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@attrs.frozen
class Holdings:
    """What a stage process holds; equal before and after a request."""

    counters: dict[str, object]
    descriptors: int
    threads: list[str]


@attrs.define(eq=False)
class StageCli:
    """One `skippyd` process with a lifecycle socket.

    Args:
        name: For messages.
        process: The child.
        lifecycle: Our end.
        log: The file that gets its standard error.
    """

    name: str
    process: subprocess.Popen[bytes]
    lifecycle: socket.socket
    log: Path
    _buffered: bytes = b""

    @classmethod
    def start(cls, name: str, arguments: Sequence[str], log: Path) -> Self:
        """Start `skippyd serve-binary ARGUMENTS` with a lifecycle socket."""
        ours, theirs = socket.socketpair()
        with theirs, log.open("ab") as stderr:
            process = subprocess.Popen(
                [
                    *(*COMMAND, "serve-binary", *arguments),
                    *("--lifecycle-fd", str(theirs.fileno())),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env={**os.environ, "GGML_NO_BACKTRACE": "1"},
            )
        return cls(name, process, ours, log)

    @property
    def pid(self) -> int:
        """The process."""
        return self.process.pid

    def wait_ready(self) -> dict[str, object]:
        """Wait until it serves."""
        return self._event("ready", READY_S)

    def status(self) -> dict[str, object]:
        """Its counters."""
        self.lifecycle.sendall(b"status\n")
        return self._event("status", END_S)

    def holdings(self) -> Holdings:
        """What it holds now."""
        status = self.status()
        threads = status["threads"]
        assert isinstance(threads, list)
        return Holdings(
            counters={name: status[name] for name in COUNTERS},
            descriptors=len(list(Path(f"/proc/{self.pid}/fd").iterdir())),
            threads=[name for name in threads if not name.startswith(IDLE_OR_ASKED)],
        )

    def stop_running(self) -> None:
        """Halt it where it is; the kernel still accepts connections for it."""
        os.kill(self.pid, signal.SIGSTOP)
        stat = Path(f"/proc/{self.pid}/stat")
        eventually(
            lambda: stat.read_text().rpartition(")")[2].split()[0] == "T",
            f"{self.name} is stopped",
        )

    def go_on(self) -> None:
        """Let it run again."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it as a fault would, and reap it."""
        self.process.kill()
        self.process.wait()
        self.lifecycle.close()

    def end(self) -> None:
        """End it kindly, then not; reap it."""
        if self.process.poll() is None:
            self.go_on()
            with contextlib.suppress(OSError):
                self.lifecycle.sendall(b"stop\n")
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.show_log(with_stacks=True)
                self.process.kill()
                self.process.wait()
        self.lifecycle.close()

    def show_log(self, *, with_stacks: bool) -> None:
        """Show what it said; first have it write the stacks of its threads."""
        if with_stacks and self.process.poll() is None:
            self.go_on()
            os.kill(self.pid, signal.SIGUSR1)
            threading.Event().wait(0.2)  # it has no way to say that it has written
        sys.stderr.write(f"---- {self.name} (pid {self.pid})\n{self.log.read_text()}\n")

    def said(self, text: str) -> bool:
        """Whether its log holds a text."""
        return text in self.log.read_text()

    def _event(self, wanted: str, timeout_s: float) -> dict[str, object]:
        give_up = time.monotonic() + timeout_s
        while True:
            while b"\n" not in self._buffered:
                left = max(0.0, give_up - time.monotonic())
                readable = select.select([self.lifecycle], [], [], left)[0]
                assert readable, f"{self.name} gave no sign: {self.log.read_text()}"
                data = self.lifecycle.recv(65_536)
                assert data, f"{self.name} ended: {self.log.read_text()}"
                self._buffered += data
            line, _, self._buffered = self._buffered.partition(b"\n")
            event: dict[str, object] = json.loads(line)
            if event["event"] == wanted:
                return event
