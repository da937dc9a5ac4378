from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skippyctl.changes import change
from skippyd.admin.wishes import Drain
from skippyd.errors import ExitCode
from support.admin_daemon import admin_daemon
from support.admin_view import FakeNodeView


if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_change_is_made_and_its_answer_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = FakeNodeView()
    path = tmp_path / "admin.sock"
    arguments = argparse.Namespace(socket=path, json=False, color="never")
    with admin_daemon(path, view):
        code = change(arguments, lambda client: client.drain(Drain()))
    assert code is ExitCode.DONE
    assert capsys.readouterr().out == "draining; 1 stage is given up in order\n"
    assert view.changes == [(Drain(), None)]
