"""Stage processes: started on the main thread, watched by pidfd, always reaped.

Each child has a task that reads its lifecycle socket and its log, and that ends when
the process is reaped. A child never outlives the daemon: the kernel kills it when the
thread that started it ends, and it ends itself at the end of its lifecycle socket.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.config.endpoints import Endpoint
from skippyd.coordination.stage_processes import (
    StageGone,
    StageHealth,
    StageLaunch,
    StageListening,
    StageLoading,
    StageNews,
    StageSpawnError,
)
from skippyd.stage.activity import parse_activity
from skippyd.stage.child_process import LogTail, describe_end, stage_environment
from skippyd.stage.span_outbox import parse_batch


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

logger = logging.getLogger("skippyd.supervisor")

STAGE_COMMAND = (sys.executable, "-m", "skippyd")
BACKLOG = 64
RECEIVE_BYTES = 65_536
EVENT_MAX_BYTES = 65_536
LAST_WORDS_SECONDS = 0.5
"""A grandchild may hold a dead stage's log open for ever."""

SHUTDOWN_GRACE_SECONDS = 5.0
"""For children that are left when the daemon ends; a drain has come before that."""

HEALTH_MAX_CHARACTERS = 500


@attrs.define(eq=False, kw_only=True)
class Child:
    """One stage process.

    Args:
        name: The stage.
        process: The process.
        lifecycle: Our end of its lifecycle socket.
        pidfd: Readable when the process has ended.
        tell: Takes the news.
        log_line: Takes each line of its log.
    """

    name: str
    process: subprocess.Popen[bytes]
    lifecycle: socket.socket
    pidfd: int
    tell: Callable[[StageNews], None]
    log_line: Callable[[str, int, str], None]
    nursery: trio.Nursery
    tail: LogTail = attrs.Factory(LogTail)
    gone: trio.Event = attrs.Factory(trio.Event)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def ask_health(self) -> None:
        """Ask for its status; a process that does not read is not waited for."""
        with contextlib.suppress(OSError):
            self.lifecycle.send(b"glance\n", socket.MSG_DONTWAIT)

    def terminate(self, grace_s: float) -> None:
        """Let it finish and end; kill it when it still runs after the grace."""
        self._signal(signal.SIGTERM)
        self.nursery.start_soon(self._kill_after, grace_s)

    def kill(self) -> None:
        """End it now."""
        self._signal(signal.SIGKILL)

    async def watch(self) -> None:
        """Read what it says until it is reaped; end it when cancelled."""
        try:
            await self._read_until_exit()
        finally:
            with trio.CancelScope(shield=True):
                await self._end()
            self.process.wait()
            self._close()
        detail = describe_end(f"{self.name} (pid {self.pid})", self._code, self.tail)
        logger.info("stage process ended: %s", detail.partition("\n")[0])
        self.tell(StageGone(detail))

    async def _end(self) -> None:
        # It has ended already, unless the daemon itself ends.
        with trio.move_on_after(0) as has_ended:
            await trio.lowlevel.wait_readable(self.pidfd)
        if has_ended.cancelled_caught:
            self._signal(signal.SIGTERM)
            with trio.move_on_after(SHUTDOWN_GRACE_SECONDS):
                await trio.lowlevel.wait_readable(self.pidfd)
            self.kill()
        await trio.lowlevel.wait_readable(self.pidfd)

    @property
    def _code(self) -> int:
        assert self.process.returncode is not None
        return self.process.returncode

    async def _read_until_exit(self) -> None:
        assert self.process.stderr is not None
        log = trio.lowlevel.FdStream(os.dup(self.process.stderr.fileno()))
        # Our half only: the child's end of the socket stays as it was.
        line = trio.socket.from_stdlib_socket(self.lifecycle.dup())
        with line:
            async with log, trio.open_nursery() as nursery:
                reading = trio.Event()
                nursery.start_soon(self._read_log, log, reading)
                nursery.start_soon(self._read_events, line)
                await trio.lowlevel.wait_readable(self.pidfd)
                with trio.move_on_after(LAST_WORDS_SECONDS):
                    await reading.wait()
                nursery.cancel_scope.cancel()

    async def _read_log(self, log: trio.lowlevel.FdStream, ended: trio.Event) -> None:
        async for data in log:
            self._pass_on(self.tail.feed(bytes(data)))
        self._pass_on(self.tail.end())
        ended.set()

    def _pass_on(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.log_line(self.name, self.pid, line)

    async def _read_events(self, line: trio.socket.SocketType) -> None:
        buffered = b""
        while len(buffered) <= EVENT_MAX_BYTES:
            try:
                data = await line.recv(RECEIVE_BYTES)
            except ConnectionResetError:
                return
            if not data:
                return
            *events, buffered = (buffered + data).split(b"\n")
            for event in events:
                self._take(event)
        logger.warning("%s sent an event without an end: killed", self.name)
        self.kill()

    def _take(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            logger.warning("%s sent %r, which is no event", self.name, line[:80])
            return
        try:
            self._tell_event(event)
        except ValueError as error:
            logger.warning("%s sent a bad event: %s", self.name, error)

    def _tell_event(self, event: dict[str, object]) -> None:
        match event.get("event"), event.get("done"):
            case "loading", float(share):
                self.tell(StageLoading(share))
            case "ready", _:
                url = event.get("openai_base_url")
                known = url if isinstance(url, str) else None
                self.tell(StageListening(openai_base_url=known))
            case "status", _:
                self.tell(StageHealth(_health_of(event), _counters_of(event)))
            case "activity", _:
                self.tell(parse_activity(event))
            case "spans", _:
                self.tell(parse_batch(event))
            case _:
                logger.debug("%s sent an unknown event", self.name)

    async def _kill_after(self, grace_s: float) -> None:
        with trio.move_on_after(grace_s):
            await self.gone.wait()
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if not self.gone.is_set():
            # By pidfd: a process id may be another's by now.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def _close(self) -> None:
        self.gone.set()
        os.close(self.pidfd)
        self.lifecycle.close()
        if self.process.stderr is not None:
            self.process.stderr.close()


@attrs.define(eq=False, kw_only=True)
class Supervisor:
    """Starts stage processes; `run` must be running.

    Args:
        host: The address that stages listen on.
        ports: Ports they may use; (0,) for any free one.
        command: The program; tests put another one here.
        log_line: Takes stage, process id and each line of its log.
    """

    host: str
    ports: Sequence[int] = (0,)
    command: Sequence[str] = STAGE_COMMAND
    log_line: Callable[[str, int, str], None] = lambda _name, _pid, _line: None
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Watch children until cancelled; then end and reap every one."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def listen(self, port: int = 0) -> socket.socket:
        """Bind and listen on the stages' address.

        Raises:
            StageSpawnError: No port is free.
        """
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        reason: OSError | None = None
        for candidate in (port,) if port else self.ports:
            listener = socket.socket(family, socket.SOCK_STREAM)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((self.host, candidate))
                listener.listen(BACKLOG)
            except OSError as error:
                listener.close()
                reason = error
            else:
                return listener
        raise StageSpawnError(
            f"no stage port is free on {self.host}: {reason}; widen [stages] first_port "
            "to last_port, or set [stages] host to an address of this machine"
        )

    def spawn(self, launch: StageLaunch, tell: Callable[[StageNews], None]) -> Child:
        """Start a process on this, the main, thread; see `StageSupervisor.spawn`.

        Raises:
            StageSpawnError: The process could not be started.
        """
        if self._nursery is None:
            raise StageSpawnError("the daemon is stopping and starts no stage")
        ours, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            try:
                process = self._popen(launch, theirs)
            except OSError as error:
                raise StageSpawnError(
                    f"{launch.name} could not be started: {error.strerror or error}"
                ) from error
            undo.pop_all()
        child = Child(
            name=launch.name,
            process=process,
            lifecycle=ours,
            pidfd=os.pidfd_open(process.pid),
            tell=tell,
            log_line=self.log_line,
            nursery=self._nursery,
        )
        self._nursery.start_soon(child.watch)
        return child

    def _popen(
        self, launch: StageLaunch, lifecycle: socket.socket
    ) -> subprocess.Popen[bytes]:
        with contextlib.ExitStack() as files:
            inherited = [lifecycle.fileno(), launch.listener.fileno()]
            arguments = [
                *("--listen-fd", str(launch.listener.fileno())),
                *("--lifecycle-fd", str(lifecycle.fileno())),
            ]
            for flag, content in launch.documents.items():
                descriptor = _in_memory(flag, content)
                files.callback(os.close, descriptor)
                inherited.append(descriptor)
                arguments += [flag, f"/proc/self/fd/{descriptor}"]
            return subprocess.Popen(
                [*self.command, "serve-binary", *arguments, *launch.arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=inherited,
                start_new_session=True,
                env=stage_environment(),
            )


def check_stage_address(host: str, *, allow_plaintext: bool) -> str | None:
    """Look whether stage connections will be plaintext where other machines are.

    Returns:
        The warning to log at each start; None on loopback and where TLS is used.
    """
    if Endpoint(host, 0).is_loopback or not allow_plaintext:
        return None
    return (
        f"stage connections on {host} are not encrypted (allow_plaintext): prompts, "
        "answers and the keys of runs can be read and changed on the way"
    )


def _in_memory(flag: str, content: bytes) -> int:
    descriptor = os.memfd_create(flag.lstrip("-"), os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _health_of(event: dict[str, object]) -> str | None:
    health, reason = event.get("health"), event.get("health_reason")
    if not isinstance(health, str):
        return None
    text = f"{health}: {reason}" if isinstance(reason, str) and reason else health
    return text[:HEALTH_MAX_CHARACTERS]


def _counters_of(event: dict[str, object]) -> dict[str, int]:
    return {name: value for name, value in event.items() if type(value) is int}
