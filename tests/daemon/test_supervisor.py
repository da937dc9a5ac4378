"""Stage processes: started, heard, ended and always reaped; a small program plays them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.coordination.stage_processes import (
    StageGone,
    StageHealth,
    StageLaunch,
    StageListening,
    StageLoading,
    StageNews,
    StageSpawnError,
)
from skippyd.core.telemetry.names import SpanName
from skippyd.core.telemetry.span import span
from skippyd.daemon.supervisor import Child, Supervisor, check_stage_address
from skippyd.stage.activity import LaneActivity, StageActivity
from skippyd.stage.span_outbox import SpanBatch


if TYPE_CHECKING:
    from collections.abc import AsyncIterator


PROGRAM = """
import json, os, signal, socket, sys, time
flags = dict(zip(sys.argv[2:-1:2], sys.argv[3:-1:2]))
line = socket.socket(fileno=int(flags["--lifecycle-fd"]))
what = sys.argv[-1]
def tell(event, **fields):
    line.sendall(json.dumps({"event": event, **fields}).encode() + b"\\n")
if what == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if what == "garbage":
    line.sendall(b"no json\\n[1]\\n" + b'{"event": "odd"}\\n')
if what == "flood":
    while True:
        line.sendall(b"x" * 65536)
print("GGML_ASSERT(x) failed" if what == "abort" else "hello", file=sys.stderr)
tell("loading", done=0.5)
tell("ready", openai_base_url="http://127.0.0.1:1/v1", said=open(flags["--config"]).read())
if what == "abort":
    os.abort()
if what == "leave":
    sys.exit("skippyd: the cut is not offered")
if what == "grandchild":
    os.system("sleep 30 &")
    sys.exit(3)
while data := line.recv(4096):
    tell("status", health="degraded", health_reason="stage-1 is gone", lanes=3, x=True)
    tell("activity", lanes=[{"lane_id": 0, "state": "idle", "token_count": 0, "age_ms": 5}],
         sessions=[], left_off=0)
    tell("activity", lanes="many")
    tell("spans", items=[["stage.recv", 1, 2, {}]], dropped=3)
"""


def launch(what: str, listener: socket.socket) -> StageLaunch:
    return StageLaunch(
        name="stage-1",
        documents={"--config": b"the document"},
        arguments=(what,),
        listener=listener,
    )


class Heard:
    """News of one child, in order."""

    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[StageNews](100)

    async def until_gone(self) -> str:
        while True:
            news = await self.receive.receive()
            if isinstance(news, StageGone):
                return news.detail

    async def until_listening(self) -> StageListening:
        while True:
            news = await self.receive.receive()
            if isinstance(news, StageListening):
                return news


@contextlib.asynccontextmanager
async def supervised(
    lines: list[tuple[str, int, str]] | None = None,
) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(
        host="127.0.0.1",
        command=(sys.executable, "-c", PROGRAM),
        log_line=lambda *line: None if lines is None else lines.append(line),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        yield supervisor
        nursery.cancel_scope.cancel()


def start(supervisor: Supervisor, what: str) -> tuple[Child, Heard]:
    heard = Heard()
    with supervisor.listen() as listener:
        child = supervisor.spawn(launch(what, listener), heard.send.send_nowait)
    return child, heard


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def look_into(pid: int) -> tuple[list[str], str]:
    """What a process has open, and its command line."""
    process = Path(f"/proc/{pid}")
    targets = [str(entry.readlink()) for entry in (process / "fd").iterdir()]
    return targets, (process / "cmdline").read_text()


pytestmark = [pytest.mark.slow, pytest.mark.process]


async def test_a_child_is_heard_from_its_start_to_its_end() -> None:
    lines: list[tuple[str, int, str]] = []
    async with supervised(lines) as supervisor:
        child, heard = start(supervisor, "serve")
        assert await heard.receive.receive() == StageLoading(0.5)
        assert await heard.receive.receive() == StageListening(
            openai_base_url="http://127.0.0.1:1/v1"
        )
        child.ask_health()
        assert await heard.receive.receive() == StageHealth(
            "degraded: stage-1 is gone", {"lanes": 3}
        )
        assert await heard.receive.receive() == StageActivity(
            lanes=(LaneActivity(lane_id=0, state="idle", age_ms=5),)
        )
        # What is no activity was logged and left out.
        batch = await heard.receive.receive()
        assert batch == SpanBatch((span(SpanName.RECV, 1, 2),), dropped=3)
        child.terminate(5.0)
        detail = await heard.until_gone()

    assert detail.startswith(f"stage-1 (pid {child.pid}) was ended by SIGTERM")
    assert lines == [("stage-1", child.pid, "hello")]
    assert not is_there(child.pid)


async def test_documents_are_handed_over_in_memory() -> None:
    async with supervised() as supervisor:
        child, heard = start(supervisor, "serve")
        await heard.until_listening()
        targets, command = look_into(child.pid)

    assert any(target.startswith("/memfd:config") for target in targets)
    assert "the document" not in command


async def test_a_crash_is_told_with_signal_cause_and_last_words() -> None:
    async with supervised() as supervisor:
        _, heard = start(supervisor, "abort")
        detail = await heard.until_gone()

    assert "was ended by SIGABRT; it said:\n  GGML_ASSERT(x) failed" in detail


async def test_an_end_on_purpose_is_told_in_its_own_words() -> None:
    async with supervised() as supervisor:
        child, heard = start(supervisor, "leave")

        detail = await heard.until_gone()

    assert detail == f"stage-1 (pid {child.pid}): the cut is not offered"


async def test_a_child_that_will_not_listen_is_killed_after_the_grace() -> None:
    async with supervised() as supervisor:
        child, heard = start(supervisor, "deaf")
        await heard.until_listening()
        child.terminate(0.1)
        detail = await heard.until_gone()

    assert "was ended by SIGKILL" in detail


async def test_a_stopped_child_is_killed_all_the_same() -> None:
    """SIGSTOP holds SIGTERM back, but not SIGKILL."""
    async with supervised() as supervisor:
        child, heard = start(supervisor, "serve")
        await heard.until_listening()
        os.kill(child.pid, signal.SIGSTOP)
        child.kill()

        assert "SIGKILL" in await heard.until_gone()


async def test_garbage_on_the_lifecycle_socket_is_no_trouble() -> None:
    async with supervised() as supervisor:
        child, heard = start(supervisor, "garbage")
        await heard.until_listening()
        assert is_there(child.pid)


async def test_an_event_without_an_end_ends_its_sender() -> None:
    async with supervised() as supervisor:
        _, heard = start(supervisor, "flood")

        assert "SIGKILL" in await heard.until_gone()


async def test_a_grandchild_holding_the_log_open_does_not_hold_up_the_end() -> None:
    async with supervised() as supervisor:
        child, heard = start(supervisor, "grandchild")
        with trio.fail_after(5):
            detail = await heard.until_gone()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    assert "exited with 3" in detail


async def test_children_are_gone_when_the_supervisor_is() -> None:
    async with supervised() as supervisor:
        children = [start(supervisor, "serve")[0] for _ in range(2)]

    assert not any(is_there(child.pid) for child in children)
    with supervisor.listen() as listener, pytest.raises(StageSpawnError, match="stop"):
        supervisor.spawn(launch("serve", listener), lambda _news: None)


async def test_a_program_that_is_not_there_is_said_at_once() -> None:
    async with supervised() as supervisor:
        supervisor.command = ("/nonexistent/skippyd",)
        with (
            supervisor.listen() as listener,
            pytest.raises(
                StageSpawnError, match="stage-1 could not be started: No such file"
            ),
        ):
            supervisor.spawn(launch("serve", listener), lambda _news: None)


PARENT = """
import os, sys, trio
from skippyd.coordination.stage_processes import StageLaunch
from skippyd.daemon.supervisor import Supervisor

async def main():
    supervisor = Supervisor(host="127.0.0.1", command=(sys.executable, "-c", sys.argv[1]))
    async with trio.open_nursery() as nursery:
        await nursery.start(supervisor.run)
        with supervisor.listen() as listener:
            launch = StageLaunch(
                name="s", documents={"--config": b""}, arguments=("serve",),
                listener=listener,
            )
            child = supervisor.spawn(launch, lambda news: print(child.pid, flush=True))
        await trio.sleep_forever()

trio.run(main)
"""


def test_a_child_does_not_outlive_a_killed_daemon() -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", PARENT, PROGRAM],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with daemon:
        assert daemon.stdout is not None
        pid = int(daemon.stdout.readline())
        pidfd = os.pidfd_open(pid)
        daemon.kill()
        ended = trio.run(_ends, pidfd)
        os.close(pidfd)

    assert ended


async def _ends(pidfd: int) -> bool:
    with trio.move_on_after(5.0) as late:
        await trio.lowlevel.wait_readable(pidfd)
    return not late.cancelled_caught


# Ports and addresses.


def test_stages_get_the_ports_of_their_range_and_no_other() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        only_taken = Supervisor(host="127.0.0.1", ports=(port,))
        with pytest.raises(StageSpawnError, match=r"no stage port is free.*\[stages\]"):
            only_taken.listen()
    with only_taken.listen() as listener:
        assert listener.getsockname() == ("127.0.0.1", port)


def test_an_address_of_another_machine_is_said() -> None:
    with pytest.raises(StageSpawnError, match=r"192\.0\.2\.1"):
        Supervisor(host="192.0.2.1").listen()


def test_plaintext_off_loopback_is_warned_about_where_it_is_wanted() -> None:
    assert check_stage_address("127.0.0.2", allow_plaintext=True) is None
    assert check_stage_address("::1", allow_plaintext=True) is None
    assert check_stage_address("192.0.2.1", allow_plaintext=False) is None
    warning = check_stage_address("192.0.2.1", allow_plaintext=True)
    assert warning is not None
    assert "not encrypted" in warning
