"""What can be said about the admin socket without an answer from it."""

from __future__ import annotations

import grp
import os
import stat
from typing import TYPE_CHECKING

from skippyd.admin.schema_checks import CheckRow


if TYPE_CHECKING:
    from pathlib import Path

GROUP = "skippy"
_CHECK = "admin socket"


def socket_check(path: Path) -> CheckRow:
    """Look at the socket's file: is it there, is it one, may this user open it."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return _failed(f"{path} does not exist", _start_remedy(path))
    except PermissionError:
        return _failed(
            f"{path.parent} may not be looked into by this user", _group_remedy()
        )
    except OSError as error:
        return _failed(f"{path}: {error.strerror or error}", "name another --socket")
    if not stat.S_ISSOCK(status.st_mode):
        return _failed(
            f"{path} is no socket",
            "move it away and start skippyd again, or name another --socket",
        )
    shown = f"{path} (mode {stat.S_IMODE(status.st_mode):04o})"
    if not os.access(path, os.W_OK):
        return _failed(f"{shown} may not be opened by this user", _group_remedy())
    return CheckRow(check=_CHECK, verdict="ok", finding=shown)


def _failed(finding: str, remedy: str) -> CheckRow:
    return CheckRow(check=_CHECK, verdict="failed", finding=finding, remedy=remedy)


def _start_remedy(path: Path) -> str:
    start = "start the daemon: systemctl start skippyd (or skippyd run --config FILE)"
    if path.parent.exists():
        return start
    return f"{start}; {path.parent} is made by its service or by systemd-tmpfiles"


def _group_remedy() -> str:
    try:
        grp.getgrnam(GROUP)
    except KeyError:
        return f"use sudo: this machine has no group {GROUP}"
    return (
        f"sudo usermod -aG {GROUP} {os.environ.get('USER', 'USER')}, then log in again"
    )
