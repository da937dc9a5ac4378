from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.coordination.fence_store import FenceStoreError
from skippyd.daemon.notify import Notifier


if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        yield listening


def _said(manager: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(manager.recv(4096).decode())
        except BlockingIOError:
            return found


def _notifier(manager: socket.socket, **extra: str) -> Notifier:
    return Notifier.from_environment({"NOTIFY_SOCKET": manager.getsockname(), **extra})


def test_it_says_ready_reloading_and_stopping(manager: socket.socket) -> None:
    notifier = _notifier(manager)
    notifier.ready("idle\nand  well")
    notifier.reloading()
    notifier.stopping("stopping", within_s=1.5)
    ready, reloading, stopping = _said(manager)
    assert ready == "READY=1\nSTATUS=idle and well"
    assert reloading.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert stopping == "STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=1500000"


def test_an_abstract_socket_is_reached() -> None:
    name = f"skippy-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        Notifier.from_environment({"NOTIFY_SOCKET": f"@{name}"}).ready("idle")
        assert listening.recv(4096) == b"READY=1\nSTATUS=idle"


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    assert Notifier.from_environment({}).address is None
    Notifier.from_environment({}).ready("idle")
    gone = Notifier.from_environment({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    gone.ready("idle")
    assert list(tmp_path.iterdir()) == []


def test_a_watchdog_meant_for_another_process_is_left_alone() -> None:
    mine = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    assert Notifier.from_environment(mine).watchdog_s == 30.0
    assert Notifier.from_environment(mine | {"WATCHDOG_PID": "1"}).watchdog_s is None
    assert Notifier.from_environment({"WATCHDOG_USEC": "x"}).watchdog_s is None


async def test_a_well_node_gives_signs_of_life(
    manager: socket.socket, autojump_clock: object
) -> None:
    notifier = _notifier(manager, WATCHDOG_USEC="20000000")

    async def well() -> None:
        await trio.lowlevel.checkpoint()

    with trio.move_on_after(16):
        await notifier.run(status=lambda: "serving", check=well)
    said = _said(manager)
    assert said.count("WATCHDOG=1") == 4
    assert said.count("STATUS=serving") == 1


@pytest.mark.parametrize("does_hang", [True, False])
async def test_a_node_whose_store_does_not_answer_gives_none(
    manager: socket.socket,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
    does_hang: bool,
) -> None:
    notifier = _notifier(manager, WATCHDOG_USEC="20000000")

    async def unwell() -> None:
        if does_hang:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        raise FenceStoreError("no space left on device")

    with trio.move_on_after(30):
        await notifier.run(status=lambda: "serving", check=unwell)
    assert "WATCHDOG=1" not in _said(manager)
    reason = "does not answer in time" if does_hang else "no space left on device"
    assert reason in caplog.text
