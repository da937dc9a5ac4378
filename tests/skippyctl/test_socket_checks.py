from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from skippyctl import socket_checks
from skippyctl.socket_checks import socket_check


if TYPE_CHECKING:
    from pathlib import Path


def test_a_socket_that_may_be_opened_is_well(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o660)
        check = socket_check(path)
    assert (check.verdict, check.finding) == ("ok", f"{path} (mode 0660)")


def test_no_socket_and_no_folder_say_how_to_start(tmp_path: Path) -> None:
    check = socket_check(tmp_path / "admin.sock")
    assert check.verdict == "failed"
    assert "does not exist" in check.finding
    assert "systemctl start skippyd" in check.remedy
    check = socket_check(tmp_path / "run" / "admin.sock")
    assert f"{tmp_path / 'run'} is made by its service" in check.remedy


def test_a_plain_file_is_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    path.touch()
    check = socket_check(path)
    assert check.finding == f"{path} is no socket"
    assert "move it away" in check.remedy
    below = socket_check(path / "below")
    assert below.verdict == "failed"


@pytest.mark.parametrize(
    ("group", "remedy"),
    [
        ("root", "sudo usermod -aG root "),
        ("no-such-group", "use sudo: this machine has"),
    ],
)
def test_a_socket_of_others_says_who_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, remedy: str
) -> None:
    path = tmp_path / "admin.sock"
    monkeypatch.setattr(socket_checks, "GROUP", group)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        check = socket_check(path)
    assert "may not be opened by this user" in check.finding
    assert check.remedy.startswith(remedy)
