"""A daemon with a made-up node, and the program run against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skippyctl import lists
from skippyctl.main import main
from support.admin_daemon import admin_daemon
from support.admin_documents import NOW_UNIX_MS
from support.admin_view import FakeNodeView


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def view() -> FakeNodeView:
    return FakeNodeView()


@pytest.fixture
def run(
    tmp_path: Path,
    view: FakeNodeView,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Run]:
    path = tmp_path / "admin.sock"
    monkeypatch.setattr(lists, "now_unix_ms", lambda: NOW_UNIX_MS)
    monkeypatch.setenv("SKIPPY_ADMIN_SOCKET", str(path))
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    with admin_daemon(path, view):
        yield run
