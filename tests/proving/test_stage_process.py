"""A child is watched: every way to end is explained, and nothing waits for ever."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skippyd.errors import ExitCode
from skippyd.proving import stage_process
from skippyd.proving.stage_process import (
    StageProcess,
    StageProcessError,
    resident_bytes,
    wait_all_ready,
)


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[..., StageProcess]

pytestmark = [pytest.mark.process, pytest.mark.slow]

PRELUDE = """
import json, os, signal, socket, subprocess, sys, time
line = socket.socket(fileno=int(sys.argv[sys.argv.index("--lifecycle-fd") + 1]))
def tell(**event):
    line.sendall(json.dumps(event).encode() + b"\\n")
def say(*words):
    print(*words, file=sys.stderr, flush=True)
def wait_for_the_end():
    while line.recv(100):
        pass
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a child that runs some Python; every child is gone after the test."""
    children: list[StageProcess] = []

    def begin(
        code: str,
        stage_id: str = "stage-7",
        on_progress: Callable[[float], None] = lambda _share: None,
    ) -> StageProcess:
        child = StageProcess.start(
            stage_id,
            [],
            command=(sys.executable, "-c", PRELUDE + code),
            on_progress=on_progress,
        )
        children.append(child)
        return child

    yield begin
    for child in children:
        child.kill()
        assert not Path(f"/proc/{child.process.pid}").exists()


SERVING = """
tell(event="loading", done=0.25)
tell(event="loading", done=1.0)
tell(event="ready", openai_base_url="http://127.0.0.1:1/v1")
while True:
    asked = line.recv(100)
    if not asked:
        break
    tell(event="status", steps=3)
"""


def test_a_child_is_ready_answers_and_ends(start: Start) -> None:
    shares: list[float] = []
    child = start(SERVING, on_progress=shares.append)
    assert child.wait_ready(10)["openai_base_url"] == "http://127.0.0.1:1/v1"
    assert shares == [0.25, 1.0]
    assert [child.status()["steps"] for _ in range(2)] == [3, 3]
    assert child.death() is None
    child.stop()
    assert child.process.returncode == 0
    assert not child.is_running
    child.stop()


def test_several_are_waited_for_together(start: Start) -> None:
    children = [start(SERVING, f"stage-{index}") for index in range(3)]
    events = wait_all_ready(children, 10)
    assert [event["event"] for event in events] == ["ready"] * 3


def test_the_first_that_ends_ends_the_wait(start: Start) -> None:
    """Also when it was ready before, and when it is not the first in the list."""
    slow = start("wait_for_the_end()", "stage-0")
    dying = start("tell(event='ready'); say('skippyd: no such file'); sys.exit(1)")
    begun = time.monotonic()
    with pytest.raises(StageProcessError, match=r"^stage-7 \(pid \d+\): no such file$"):
        wait_all_ready([slow, dying], 60)
    assert time.monotonic() - begun < 10


def test_own_last_words_are_one_line_with_their_exit_code(start: Start) -> None:
    child = start(
        "say('2026 INFO loading'); say('skippyd: cut 0 is not offered'); sys.exit(6)"
    )
    with pytest.raises(StageProcessError) as caught:
        child.wait_ready(10)
    assert str(caught.value) == (
        f"stage-7 (pid {child.process.pid}): cut 0 is not offered"
    )
    assert caught.value.exit_code is ExitCode.REFUSED
    assert caught.value.is_refusal


def test_an_unexpected_exit_shows_the_last_lines(start: Start) -> None:
    child = start("[say('line', n) for n in range(30)]; os._exit(33)")
    with pytest.raises(StageProcessError) as caught:
        child.wait_ready(10)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"stage-7 (pid {child.process.pid}) exited with 33; it said:"
    assert lines[1:] == [f"  line {n}" for n in range(10, 30)]
    assert caught.value.exit_code is ExitCode.FAILED
    assert not caught.value.is_refusal


def test_a_killed_child_is_named_by_its_signal(start: Start) -> None:
    child = start(SERVING)
    child.wait_ready(10)
    os.kill(child.process.pid, 9)
    death = child.death()
    assert death is not None
    assert str(death) == f"stage-7 (pid {child.process.pid}) was ended by SIGKILL"
    assert not death.is_refusal
    with pytest.raises(StageProcessError, match="was ended by SIGKILL"):
        child.status()


def test_a_signal_without_a_name_has_its_number(start: Start) -> None:
    child = start("os.kill(os.getpid(), 40)")
    with pytest.raises(StageProcessError, match="was ended by signal 40"):
        child.wait_ready(10)


@pytest.mark.native
def test_a_failed_assertion_of_ggml_comes_first(start: Start) -> None:
    """Contract: the first line with an assertion, then the last 20."""
    child = start(
        "from skippyd.runtime.llama.bindings import ggml_base\n"
        "assert os.environ['GGML_NO_BACKTRACE'] == '1'\n"
        "say('before')\n"
        "signal.signal(signal.SIGABRT, signal.SIG_DFL)\n"
        "words = b'GGML_ASSERT(%s) failed'\n"
        "ggml_base().ggml_abort(b'graph.cpp', 7, words, b'n > 0')\n"
    )
    with pytest.raises(StageProcessError) as caught:
        child.wait_ready(10)
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        f"stage-7 (pid {child.process.pid}) was ended by SIGABRT; it said:"
    )
    assert lines[1:] == ["  graph.cpp:7: GGML_ASSERT(n > 0) failed", "  before"]
    assert caught.value.is_refusal


def test_a_thrown_exception_is_a_cause_even_when_much_follows(start: Start) -> None:
    child = start(
        "say('terminate called after throwing an instance')\n"
        "[say('more', n) for n in range(40)]\n"
        "os.abort()\n"
    )
    with pytest.raises(StageProcessError) as caught:
        child.wait_ready(10)
    lines = str(caught.value).splitlines()
    assert lines[1] == "  terminate called after throwing an instance"
    assert lines[2:] == [f"  more {n}" for n in range(20, 40)]


def test_a_child_that_gives_no_sign_is_given_up(start: Start) -> None:
    child = start("wait_for_the_end()")
    with pytest.raises(
        StageProcessError, match=r"no sign in time from stage-7 \(pid \d+\)"
    ):
        child.wait_ready(0.2)


def test_a_child_that_closes_its_line_and_lives_is_said_so(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_process, "STOP_SECONDS", 0.3)
    child = start("line.close(); time.sleep(60)")
    with pytest.raises(StageProcessError, match=r"closed its line to us.*and runs on"):
        child.wait_ready(10)
    assert child.explain_death().endswith("is still running")


def test_a_child_that_does_not_stop_is_killed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start("tell(event='ready'); time.sleep(60)")
    child.wait_ready(10)
    monkeypatch.setattr(stage_process, "STOP_SECONDS", 0.3)
    child.stop()
    assert child.process.returncode == -9


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("line.sendall(b'no json\\n'); wait_for_the_end()", "b'no json', which is no"),
        ("line.sendall(b'[1]\\n'); wait_for_the_end()", "which is no event"),
        (
            "line.sendall(b'x' * 3_000_000); wait_for_the_end()",
            "sent an event without an end",
        ),
    ],
)
def test_rubbish_on_the_line_is_refused(start: Start, code: str, words: str) -> None:
    with pytest.raises(StageProcessError, match=words):
        start(code).wait_ready(10)


def test_a_grandchild_that_holds_the_log_open_holds_up_nobody(start: Start) -> None:
    """Its end of the pipe stays open for as long as it lives: that is no wait."""
    child = start(
        "other = subprocess.Popen(['sleep', '60'], stdout=2)\n"
        "say('grandchild', other.pid)\n"
        "tell(event='ready', other=other.pid)\n"
        "wait_for_the_end()\n"
    )
    other = child.wait_ready(10)["other"]
    assert isinstance(other, int)
    os.kill(child.process.pid, 9)
    begun = time.monotonic()
    death = child.death()
    assert death is not None
    assert f"grandchild {other}" in str(death)
    child.stop()
    assert time.monotonic() - begun < 3
    os.kill(other, 9)


def test_a_log_without_line_ends_is_kept_in_pieces(start: Start) -> None:
    child = start("sys.stderr.write('x' * 200_000); sys.stderr.flush(); os._exit(3)")
    with pytest.raises(StageProcessError):
        child.wait_ready(10)
    assert sum(len(line) for line in child.last_lines) == 200_000
    assert max(len(line) for line in child.last_lines) <= 2 * 65_536


def test_a_program_that_is_not_there_leaves_nothing_open() -> None:
    with pytest.raises(FileNotFoundError):
        StageProcess.start("stage-0", [], command=("/nowhere/skippyd",))


def test_memory_counts_private_pages_and_memory_files(start: Start) -> None:
    """Contract, "Command output": Pss of the rollup plus blocks of every memfd."""
    hold = "memory = os.memfd_create('x'); os.write(memory, b'1' * (32 << 20))\n"
    child = start(hold + SERVING)
    plain = start(SERVING)
    wait_all_ready([child, plain], 10)
    more = resident_bytes(child.process.pid) - resident_bytes(plain.process.pid)
    assert 31 << 20 < more < 40 << 20
    assert resident_bytes(2**22 + 5) == 0
