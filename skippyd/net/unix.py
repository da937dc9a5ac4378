"""Unix sockets: bound with the right mode, stale files told from living ones, peers named.

Who may do what is not decided here: `peer_credentials` only says who is connected.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
from typing import TYPE_CHECKING

import attrs
import trio

from skippyd.errors import ConfigError, ExitCode, SkippyError


if TYPE_CHECKING:
    from pathlib import Path

SO_PEERGROUPS = 59
"""Of Linux 4.13 and later; Python's socket module does not name it."""

LONGEST_PATH_BYTES = 107
"""`sun_path` holds 108 bytes with its closing NUL."""

_CREDENTIALS = struct.Struct("3i")
_GROUPS_FIRST_GUESS = 64
_BACKLOG = 32


class SocketInUseError(SkippyError):
    """Another process listens on this path."""

    exit_code = ExitCode.TRY_AGAIN


class SocketUnreachableError(SkippyError):
    """Nothing answers on this path."""

    exit_code = ExitCode.UNREACHABLE


class SocketDeniedError(SkippyError):
    """This user may not open the socket."""

    exit_code = ExitCode.PERMISSION


@attrs.frozen(kw_only=True)
class PeerCredentials:
    """Who was at the other end when the connection was made.

    Args:
        pid: Process id; for logs only, it may have been reused.
        uid: Effective user.
        gid: Effective group.
        groups: Supplementary groups.
    """

    pid: int
    uid: int
    gid: int
    groups: frozenset[int]


def peer_credentials(stream: trio.SocketStream) -> PeerCredentials:
    """Ask the kernel who connected."""
    raw = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    assert isinstance(raw, bytes)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return PeerCredentials(pid=pid, uid=uid, gid=gid, groups=_groups(stream))


def open_unix_listener(
    path: Path, *, mode: int = 0o660, gid: int | None = None
) -> trio.SocketListener:
    """Bind a path and listen; a stale socket file is replaced, a living one is not.

    The file is private until mode and group are set, so nobody slips in between.

    Raises:
        SocketInUseError: Somebody answers on it.
        SocketDeniedError: The folder or the file is not ours to use.
        ConfigError: The path is too long, or is a file that is no socket.
    """
    _check_length(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        _bind_private(listening, path)
        if gid is not None:
            os.chown(path, -1, gid)
        path.chmod(mode)
        listening.listen(_BACKLOG)
    except PermissionError as error:
        listening.close()
        raise SocketDeniedError(
            f"{path}: cannot be bound: {error.strerror}; check the owner of its folder"
        ) from error
    except BaseException:
        listening.close()
        raise
    return trio.SocketListener(trio.socket.from_stdlib_socket(listening))


async def connect_unix(path: Path) -> trio.SocketStream:
    """Connect to a listening path.

    Raises:
        SocketDeniedError: This user may not open it.
        SocketUnreachableError: Nothing is there, or nothing answers.
    """
    _check_length(path)
    try:
        return await trio.open_unix_socket(str(path))
    except PermissionError as error:
        raise SocketDeniedError(
            f"cannot reach {path}: permission denied; join group skippy or use sudo"
        ) from error
    except OSError as error:
        raise SocketUnreachableError(
            f"cannot reach {path}: {error.strerror or error}; is skippyd running?"
        ) from error


def remove_socket_file(path: Path) -> None:
    """Unlink the file of a listener that was closed, unless another one has come."""
    with contextlib.suppress(FileNotFoundError):
        if not _answers(str(path)):
            path.unlink()


def _groups(stream: trio.SocketStream) -> frozenset[int]:
    size = _GROUPS_FIRST_GUESS * 4
    try:
        raw = stream.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, size)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        raw = stream.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 65_536 * 4)
    assert isinstance(raw, bytes)
    return frozenset(struct.unpack(f"{len(raw) // 4}I", raw))


def check_socket_path(path: Path, *, is_folder_needed: bool = True) -> None:
    """Look whether a path could become a listening socket; whoever has it now.

    Args:
        path: The path.
        is_folder_needed: Whether its folder is to be there already.

    Raises:
        ConfigError: It is too long, is a file that is no socket, or has no folder.
    """
    _check_length(path)
    if is_folder_needed and not path.parent.exists():
        raise _without_folder(path)
    try:
        _check_kind(path, path.lstat())
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error


def _check_kind(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISSOCK(status.st_mode):
        raise ConfigError(
            f"{path}: is there already and is no socket; move it away or choose "
            "another path"
        )


def _without_folder(path: Path) -> ConfigError:
    return ConfigError(f"{path}: its folder does not exist; create it first")


def _check_length(path: Path) -> None:
    length = len(os.fsencode(path))
    if length > LONGEST_PATH_BYTES:
        raise ConfigError(
            f"{path}: is {length} bytes long; a socket path has at most "
            f"{LONGEST_PATH_BYTES}; choose a shorter one"
        )


def _remove_stale(path: Path) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    _check_kind(path, status)
    if _answers(str(path)):
        raise SocketInUseError(
            f"{path}: another process listens on it; stop it or choose another path"
        )
    path.unlink(missing_ok=True)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(path)
    if code == errno.ENOENT:
        raise FileNotFoundError(code, os.strerror(code), path)
    if code == errno.EACCES:
        raise PermissionError(code, os.strerror(code), path)
    # A full backlog (EAGAIN) is the sign of a living listener as well.
    return code != errno.ECONNREFUSED


def _bind_private(listening: socket.socket, path: Path) -> None:
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SocketInUseError(
                f"{path}: another process has just bound it"
            ) from error
        if error.errno == errno.ENOENT:
            raise _without_folder(path) from error
        raise
    finally:
        os.umask(before)
