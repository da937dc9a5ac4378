"""Unix sockets: modes, stale files, refusals in words, and who is connected."""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest
import trio

from skippyd.errors import ConfigError, ExitCode
from skippyd.net.unix import (
    SocketDeniedError,
    SocketInUseError,
    SocketUnreachableError,
    connect_unix,
    open_unix_listener,
    peer_credentials,
    remove_socket_file,
)


if TYPE_CHECKING:
    from pathlib import Path


async def test_both_ends_meet_and_know_each_other(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    listener = open_unix_listener(path)
    async with (
        listener,
        await connect_unix(path) as client,
        await listener.accept() as server,
    ):
        who = peer_credentials(server)
        assert who.pid == os.getpid()
        assert (who.uid, who.gid) == (os.geteuid(), os.getegid())
        assert who.groups == frozenset(os.getgroups())
        await client.send_all(b"hello")
        assert await server.receive_some(16) == b"hello"


async def test_the_file_has_the_mode_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    before = os.umask(0o022)
    try:
        async with open_unix_listener(path, mode=0o660, gid=os.getgid()):
            status = path.stat()
            assert stat.S_IMODE(status.st_mode) == 0o660
            assert status.st_gid == os.getgid()
            assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


async def test_a_stale_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    async with open_unix_listener(path) as listener, await connect_unix(path):
        await (await listener.accept()).aclose()


async def test_a_living_listener_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    async with open_unix_listener(path):
        with pytest.raises(SocketInUseError, match="another process listens") as caught:
            open_unix_listener(path)
        assert caught.value.exit_code is ExitCode.TRY_AGAIN
        await (await connect_unix(path)).aclose()


def test_a_file_that_is_no_socket_is_never_deleted(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    path.write_text("precious")
    with pytest.raises(ConfigError, match="is no socket"):
        open_unix_listener(path)
    assert path.read_text() == "precious"


def test_a_path_too_long_for_a_socket_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at most 107"):
        open_unix_listener(tmp_path / ("x" * 200))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="folder does not exist"):
        open_unix_listener(tmp_path / "absent" / "admin.sock")


async def test_nobody_listening_is_told_apart_from_a_closed_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "admin.sock"
    with pytest.raises(SocketUnreachableError, match="is skippyd running") as caught:
        await connect_unix(path)
    assert caught.value.exit_code is ExitCode.UNREACHABLE

    async def denied(_: str) -> trio.SocketStream:
        raise PermissionError(13, "Permission denied")

    # Root may open everything, so the kernel's answer is played.
    monkeypatch.setattr(trio, "open_unix_socket", denied)
    with pytest.raises(SocketDeniedError, match="join group skippy") as refused:
        await connect_unix(path)
    assert refused.value.exit_code is ExitCode.PERMISSION


async def test_the_file_goes_with_its_listener_but_not_with_a_stranger(
    tmp_path: Path,
) -> None:
    path = tmp_path / "admin.sock"
    async with open_unix_listener(path):
        remove_socket_file(path)
        assert path.exists()
    remove_socket_file(path)
    assert not path.exists()
    remove_socket_file(path)
    assert not path.exists()
