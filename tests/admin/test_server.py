"""The admin socket as a file, as a door, and as something that outlives bad guests."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.admin import server as server_module
from skippyd.admin.access import Access
from skippyd.admin.server import serve_admin
from skippyd.errors import ConfigError
from skippyd.net.jsonrpc import RpcConnection
from skippyd.net.jsonrpc_messages import RpcError
from skippyd.net.unix import SocketInUseError, connect_unix
from skippyd.net.websocket import ChannelClosedError, open_websocket
from support.admin_documents import idle
from support.admin_view import FakeNodeView


if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65_534
HELLO = {"schema": "skippy.hello/1", "api": 1, "version": "test"}
IS_ROOT = os.geteuid() == 0


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def group(path: Path) -> int:
    return path.stat().st_gid


def is_there(path: Path) -> bool:
    return path.exists()


def bind_and_die(path: Path) -> None:
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); "
        "s.listen()"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=30)


async def ask(path: Path, method: str, params: object = None) -> object:
    async with (
        open_websocket(
            await connect_unix(path), host="localhost", path="/v1"
        ) as channel,
        trio.open_nursery() as nursery,
    ):
        connection = RpcConnection(channel)
        await nursery.start(connection.run)
        try:
            await connection.call("hello", HELLO)
            return await connection.call(method, params)
        finally:
            nursery.cancel_scope.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "admin.sock"


async def test_it_answers_and_takes_its_file_away(
    path: Path, nursery: trio.Nursery
) -> None:
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as inner:
            await inner.start(serve_admin, path, FakeNodeView())
            answer = await ask(path, "status")
            assert isinstance(answer, dict)
            assert answer["schema"] == "skippy.status/1"
            assert mode(path) == 0o660
            scope.cancel()
    assert not is_there(path)


async def test_the_file_belongs_to_the_readers_group(
    path: Path, nursery: trio.Nursery
) -> None:
    wanted = NOBODY if IS_ROOT else os.getgid()
    rule = Access(owner_uid=0, readers_gid=wanted, writers_gid=None)

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        await serve_admin(path, FakeNodeView(), access=rule, task_status=task_status)

    await nursery.start(serve)
    assert group(path) == wanted
    nursery.cancel_scope.cancel()


async def test_a_living_daemon_is_not_pushed_aside_a_dead_one_is(
    path: Path, nursery: trio.Nursery
) -> None:
    await nursery.start(serve_admin, path, FakeNodeView())
    with pytest.raises(SocketInUseError, match="another process listens"):
        await serve_admin(path, FakeNodeView())
    assert await ask(path, "nodes")
    nursery.cancel_scope.cancel()


async def test_a_stale_file_is_replaced(path: Path, nursery: trio.Nursery) -> None:
    bind_and_die(path)
    assert is_there(path)
    await nursery.start(serve_admin, path, FakeNodeView())
    assert await ask(path, "status")
    nursery.cancel_scope.cancel()


async def test_a_file_that_is_no_socket_is_left_alone(path: Path) -> None:
    precious = trio.Path(path)
    await precious.write_text("precious")
    with pytest.raises(ConfigError, match="is no socket"):
        await serve_admin(path, FakeNodeView())
    assert await precious.read_text() == "precious"


async def test_garbage_and_other_paths_end_that_connection_only(
    path: Path, nursery: trio.Nursery
) -> None:
    await nursery.start(serve_admin, path, FakeNodeView())
    garbage = await connect_unix(path)
    await garbage.send_all(b"\x00\xff" * 100 + b"\r\n\r\n")
    with trio.fail_after(5):
        while await _read(garbage):
            pass
    await garbage.aclose()
    with pytest.raises(ChannelClosedError, match="404"):
        async with open_websocket(
            await connect_unix(path), host="localhost", path="/v2"
        ):
            pytest.fail("there is no such path")
    with pytest.raises(RpcError, match="no method"):
        await ask(path, "nonsense")
    assert await ask(path, "status")
    nursery.cancel_scope.cancel()


async def _read(stream: trio.SocketStream) -> bytes:
    try:
        return bytes(await stream.receive_some(4096))
    except trio.BrokenResourceError:
        return b""


async def test_guests_are_counted(
    path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module._Room, "__init__", _one_place)
    await nursery.start(serve_admin, path, FakeNodeView())
    first = await connect_unix(path)
    second = await connect_unix(path)
    with trio.fail_after(5):
        assert await _read(second) == b""
        await second.aclose()
        await first.aclose()
        while True:
            try:
                assert await ask(path, "status")
                break
            except ChannelClosedError:
                # The server has not seen the first one go yet.
                await trio.lowlevel.checkpoint()
    nursery.cancel_scope.cancel()


def _one_place(room: server_module._Room) -> None:
    room.left = 1


async def test_a_watcher_is_told_of_changes_as_they_come(
    path: Path, nursery: trio.Nursery
) -> None:
    view = FakeNodeView()
    await nursery.start(serve_admin, path, view)
    sent, received = trio.open_memory_channel[object](10)

    def take(method: str, params: object) -> None:
        assert method == "item"
        assert isinstance(params, dict)
        sent.send_nowait(params["document"])

    async with open_websocket(
        await connect_unix(path), host="localhost", path="/v1"
    ) as channel:
        connection = RpcConnection(channel, on_notification=take)
        await nursery.start(connection.run)
        await connection.call("hello", HELLO)
        nursery.start_soon(connection.call, "status.watch")
        with trio.fail_after(5):
            assert _state(await received.receive()) == "serving"
            with pytest.raises(RpcError, match="one stream a connection"):
                await connection.call("logs.watch", {})
            view.show(idle())
            assert _state(await received.receive()) == "idle"
        nursery.cancel_scope.cancel()


def _state(document: object) -> object:
    assert isinstance(document, dict)
    return document["daemon"]["state"]


@pytest.mark.process
@pytest.mark.slow
async def test_a_stranger_is_refused_by_file_mode_and_by_credentials(
    open_folder: Path, nursery: trio.Nursery
) -> None:
    """Twice: the kernel does not let them in, and if it did the daemon would not.

    Root asks as another user; any other user is a stranger to a daemon of root's.
    """
    path = open_folder / "admin.sock"
    rule = Access(owner_uid=0, readers_gid=None, writers_gid=None)

    async def serve(task_status: trio.TaskStatus[None]) -> None:
        await serve_admin(path, FakeNodeView(), access=rule, task_status=task_status)

    await nursery.start(serve)
    await trio.Path(path).chmod(0o600 if IS_ROOT else 0)
    denied = await _as_a_stranger(path)
    assert denied.returncode == 5
    assert denied.stderr.decode().splitlines()[0] == (
        f"skippyctl status: cannot reach {path}: permission denied; "
        "join group skippy or use sudo"
    )
    await trio.Path(path).chmod(0o666)
    refused = await _as_a_stranger(path)
    assert refused.returncode == 5
    uid = NOBODY if IS_ROOT else os.geteuid()
    assert json.loads(refused.stderr.splitlines()[-1])["message"] == (
        f"permission denied: user id {uid} may not use status; "
        "join group skippy or use sudo"
    )
    assert (denied.stdout, refused.stdout) == (b"", b"")
    nursery.cancel_scope.cancel()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may walk through; those of pytest are private."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


async def _as_a_stranger(path: Path) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "skippyctl", "status", "--json"]
    if IS_ROOT:
        become = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        command = ["setpriv", *become, *command]
    return await trio.run_process(
        [*command, "--socket", str(path)],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
