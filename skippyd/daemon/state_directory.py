"""The state directory of a node: who may use it, one daemon at a time, what lies where.

A lock on an open file goes with the process that holds it, however that ends: a lock
file left behind by a dead daemon locks nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import TYPE_CHECKING, Self

import attrs

from skippyd.config.daemon import DEFAULT_STATE_DIR
from skippyd.errors import ConfigError, ExitCode, SkippyError


if TYPE_CHECKING:
    from pathlib import Path

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
OTHERS_BITS = 0o077
LOCK_NAME = "lock"
OWNER_MAX_BYTES = 64


class StateDirectoryBusyError(SkippyError):
    """Another daemon uses the directory; the message names it."""

    exit_code = ExitCode.TRY_AGAIN


class StateDirectoryUnwritableError(SkippyError):
    """The disk does not take a write; it may later, without a change by a person."""

    exit_code = ExitCode.TRY_AGAIN


@attrs.define(eq=False)
class StateDirectory:
    """A locked state directory and the paths in it.

    Args:
        path: The directory, mode 0700.
    """

    path: Path
    _lock: int

    @property
    def identity_key(self) -> Path:
        """This node's private key."""
        return self.path / "identity.key"

    @property
    def has_identity(self) -> bool:
        """Whether this node was known to others before this start.

        The fence store is to be opened before an identity is made: then an identity
        without a store means that the store was lost, never that a start was cut short.
        """
        return self.identity_key.exists()

    @property
    def identity_certificate(self) -> Path:
        """This node's certificate."""
        return self.path / "identity.pem"

    @property
    def peers(self) -> Path:
        """Certificates and addresses of the nodes it has joined."""
        return self.path / "peers"

    @property
    def model_digests(self) -> Path:
        """Digests of model files that were worked out before."""
        return self.path / "model-digests.json"

    @property
    def safe_mode(self) -> Path:
        """The operator's wish for the next start."""
        return self.path / "safe-mode.toml"

    @property
    def coordinator(self) -> Path:
        """Highest own term, and what is to be deployed."""
        return self.path / "coordinator.json"

    def close(self) -> None:
        """Unlock it; harmless when repeated."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def open_state_directory(path: Path) -> StateDirectory:
    """Make the directory if need be, check whose it is, and lock it.

    Raises:
        StateDirectoryBusyError: Another daemon has it.
        StateDirectoryUnwritableError: The disk is full, or fails.
        ConfigError: It cannot be made, is not ours, or is no directory.
    """
    try:
        _prepare(path)
        descriptor = os.open(
            path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE
        )
    except OSError as error:
        raise ConfigError(
            f"state directory {path}: {error.strerror or error}; make it, or give it "
            f"to the user that runs skippyd (now user id {os.geteuid()})"
        ) from error
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, descriptor)
        _lock(descriptor, path)
        undo.pop_all()
    return StateDirectory(path, descriptor)


def check_state_directory(path: Path) -> None:
    """Look whether the directory could be used, or made; makes and locks nothing.

    Raises:
        ConfigError: It is no directory, lies in none, could not be made, or belongs to
            another user. Root may look at what is another user's.
    """
    try:
        nearest = next(each for each in (path, *path.parents) if each.exists())
        status = nearest.stat()
    except OSError as error:
        raise ConfigError(f"state directory {path}: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"state directory {path}: {nearest} is no directory")
    # The folder of the default is made by the service manager.
    is_made_for_us = str(path) == DEFAULT_STATE_DIR
    if nearest == path and os.geteuid() != 0:
        _check_owner(path, status.st_uid)
    elif not is_made_for_us and not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(
            f"state directory {path}: user id {os.geteuid()} cannot make it in {nearest}"
        )


def _check_owner(path: Path, owner_uid: int) -> None:
    if owner_uid != os.geteuid():
        raise ConfigError(
            f"state directory {path} belongs to user id {owner_uid}, skippyd runs as "
            f"{os.geteuid()}; run it as its owner, or change the owner"
        )


def _prepare(path: Path) -> None:
    path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    status = path.stat()
    _check_owner(path, status.st_uid)
    if stat.S_IMODE(status.st_mode) & OTHERS_BITS:
        # In it are a private key and the secrets of runs.
        path.chmod(DIRECTORY_MODE)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, OWNER_MAX_BYTES, 0).decode(errors="replace")
        raise StateDirectoryBusyError(
            f"state directory {path} is in use by pid {owner.strip() or 'unknown'}; "
            "stop that daemon, or give this one a [node] state_dir of its own"
        ) from error
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        raise StateDirectoryUnwritableError(
            f"{path / LOCK_NAME} cannot be written: {error.strerror}; free space, check "
            "the disk, then start skippyd again"
        ) from error
