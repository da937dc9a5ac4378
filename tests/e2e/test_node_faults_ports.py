"""Every port of nodes that serve a model, under strangers: it goes on answering."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

import attrs
import pytest

from support.daemons import Daemon, until
from support.process_holdings import (
    Holdings,
    child_pids,
    cpu_seconds,
    working_threads,
)
from support.random_models import RandomModel, write_random_model
from support.strangers import (
    Port,
    Stranger,
    announce_too_long_a_head,
    announce_too_much,
    begin_well,
    ports_of,
    until_all_ended,
    visiting,
)


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.watchdog(180)]

MODEL, PROMPT, TOKENS = "small", "Who is there?", 4
EACH = 3
"""Connections of a kind to each port at once: no limit on one address is reached."""

ANSWERED_S = 60.0
SENT_AWAY_S = 40.0
FORGOTTEN_S = 45.0
IDLE_S, IDLE_SHARE = 1.0, 0.05
MEMORY_BYTES = 2**24
"""What allocators may keep; a frame that was believed would be far above."""


@attrs.define(eq=False)
class Serving:
    """Two nodes that serve a model, and what each of their processes held at rest."""

    nodes: tuple[Daemon, Daemon]
    ports: tuple[Port, ...]
    answer: str
    at_rest: dict[int, tuple[Holdings, int]]

    def ask(self) -> str:
        """Ask at the front door that forwards to the other node."""
        return self.nodes[1].answer(MODEL, PROMPT, TOKENS)

    def is_at_rest(self) -> bool:
        """Whether each process holds no more than it did."""
        return all(
            _is_at_rest(pid, before, threads)
            for pid, (before, threads) in self.at_rest.items()
        )

    def is_idle(self) -> bool:
        """Whether no process uses the processor; looks for a while."""
        before = {pid: cpu_seconds(pid) for pid in self.at_rest}
        threading.Event().wait(IDLE_S)  # what is measured, not what is waited for
        return all(
            cpu_seconds(pid) - used < IDLE_SHARE * IDLE_S
            for pid, used in before.items()
        )


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A chain over two nodes that has answered and rests."""
    folder = tmp_path_factory.mktemp("ports")
    models = folder / "models"
    models.mkdir()
    write_random_model(models / f"{MODEL}.gguf", RandomModel(with_tokenizer=True))
    atlas, borea = (Daemon(name, folder / name, models) for name in ("atlas", "borea"))
    try:
        for daemon in (atlas, borea):
            daemon.start()
        for daemon in (atlas, borea):
            daemon.until_ready()
        borea.join(atlas)
        until(lambda: atlas.sees().get("borea") == "ok", "they have met", within_s=30)
        done = atlas.ctl("deploy", MODEL, "--nodes", "atlas,borea", "--lanes", "1")
        assert done.returncode == 0, done.stdout + done.stderr
        answer = borea.answer(MODEL, PROMPT, TOKENS)
        yield Serving(
            (atlas, borea), ports_of((atlas, borea)), answer, _held(atlas, borea)
        )
        for daemon in (atlas, borea):
            assert daemon.stop() == 0, daemon.log
    finally:
        for daemon in (atlas, borea):
            daemon.close()


def _held(*nodes: Daemon) -> dict[int, tuple[Holdings, int]]:
    pids: list[int] = []
    for node in nodes:
        assert node.process is not None
        pids += [node.process.pid, *child_pids(node.process.pid)]
    assert len(pids) == 2 * len(nodes), "a daemon and a stage each"
    return {pid: (Holdings.of(pid), working_threads(pid)) for pid in pids}


@attrs.define(eq=False)
class Asking:
    """Somebody who asks the chain all along."""

    serving: Serving
    answers: list[str] = attrs.Factory(list)
    failures: list[Exception] = attrs.Factory(list)
    is_over: threading.Event = attrs.Factory(threading.Event)

    def run(self) -> None:
        """Ask until it is over, or until an answer fails."""
        try:
            while not self.is_over.is_set():
                self.answers.append(self.serving.ask())
        except (OSError, ValueError) as error:
            self.failures.append(error)

    def expect_answers(self) -> None:
        """Wait for an answer to a question that is asked from now on."""
        wanted = len(self.answers) + 2
        until(
            lambda: len(self.answers) >= wanted or self.failures != [],
            "answers go on",
            within_s=ANSWERED_S,
        )
        assert self.failures == []


@pytest.fixture
def asking(serving: Serving) -> Iterator[Asking]:
    """Questions all along; afterwards each process holds what it held, and rests."""
    made = Asking(serving)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.is_over.set()
        thread.join()
    assert made.failures == []
    assert set(made.answers) == {serving.answer}
    until(serving.is_at_rest, f"all hold {serving.at_rest}", within_s=FORGOTTEN_S)
    until(serving.is_idle, "all are idle", within_s=FORGOTTEN_S)


def test_garbage_at_every_port_ends_that_connection_only(
    serving: Serving, asking: Asking
) -> None:
    garbage = (bytes(4096), b"\xff" * 4096, os.urandom(4096), b"\r\n" * 99)
    for port in serving.ports:
        for data in garbage:
            with visiting(port) as stranger:
                stranger.send(data)
                stranger.say_all()
                stranger.until_ended()
    asking.expect_answers()


def test_strangers_that_say_nothing_or_drip_are_all_sent_away(
    serving: Serving, asking: Asking
) -> None:
    """Each port by its own deadline; nobody else waits for it."""
    with contextlib.ExitStack() as held:
        silent, dripping = _crowd(held, serving.ports), _crowd(held, serving.ports)
        for stranger in dripping:
            begin_well(stranger)
        asking.expect_answers()
        for node in serving.nodes:
            assert node.ctl("status").returncode == 0
        until_all_ended(silent, dripping, within_s=SENT_AWAY_S)
    asking.expect_answers()


@pytest.mark.parametrize(
    "announce",
    [announce_too_much, announce_too_long_a_head],
    ids=["frame", "head"],
)
def test_a_first_frame_over_any_limit_is_not_read(
    serving: Serving, asking: Asking, announce: Callable[[Stranger], None]
) -> None:
    for port in serving.ports:
        with visiting(port) as stranger:
            announce(stranger)
            stranger.until_ended()
    asking.expect_answers()


def _is_at_rest(pid: int, before: Holdings, threads: int) -> bool:
    now = Holdings.of(pid)
    return (
        now.descriptors <= before.descriptors
        and working_threads(pid) <= threads
        and now.resident_bytes <= before.resident_bytes + MEMORY_BYTES
    )


def _crowd(held: contextlib.ExitStack, ports: tuple[Port, ...]) -> list[Stranger]:
    return [held.enter_context(visiting(port)) for port in ports for _ in range(EACH)]
